-- Functions whose arguments or results have changed: what they were goes, what they are comes with their files.

-- It counts in one look what publish_staged went through the stage twice more for.
-- squawk-ignore ban-drop-function
DROP FUNCTION IF EXISTS messages.check_stage(text, uuid[], bigint[]);

-- They are given topics instead of rows: to make a row for each message that ends, and to take it apart again, cost more than all the rest
-- of what the policies of other topics cost.
-- squawk-ignore ban-drop-function
DROP FUNCTION IF EXISTS messages.depart(messages.departed[], text);
-- squawk-ignore ban-drop-function
DROP FUNCTION IF EXISTS messages.lower_depth(messages.departed[]);
