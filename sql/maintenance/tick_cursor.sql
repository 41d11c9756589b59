-- Returns the topic at which the last run of a task that visits topics ended.
-- Called by: tick_topics, update_conditions. Locks: nothing. Result: the topic; '' = at the end.
CREATE OR REPLACE FUNCTION messages.tick_cursor(p_task text)
RETURNS text
LANGUAGE sql
STABLE
AS $$
  SELECT coalesce((SELECT c.topic FROM messages.tick_cursor AS c WHERE c.task = p_task), '')
$$;
