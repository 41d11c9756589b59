-- What check_stage tells has changed: it counts in one look what publish_staged went through the stage twice more for.
-- squawk-ignore ban-drop-function
DROP FUNCTION IF EXISTS messages.check_stage(text, uuid[], bigint[]);
