-- Which run of a message a claim began: a deferral and a release hand the attempt back, and a handler may want to know how often it was begun.
ALTER TYPE messages.claimed ADD ATTRIBUTE runs integer;
-- It said the same of a message without steps as of one that is not under the claim. The new one has a row for every message that is.
-- squawk-ignore ban-drop-function
DROP FUNCTION IF EXISTS messages.kept_steps(bigint, bigint);
