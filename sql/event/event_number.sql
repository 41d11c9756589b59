-- Returns the number of a signal, or of a time-out, from the name of the step that keeps it; NULL if the step keeps
-- none of this name. Such a step is called event:NUMBER:NAME, and no other step begins so (save_step).
-- Called by: signal, load_events, wait_for_event. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.event_number(p_step text, p_name text)
RETURNS integer
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT CASE
    WHEN p_step = 'event:' || split_part(p_step, ':', 2) || ':' || p_name THEN split_part(p_step, ':', 2)::integer
  END
$$;
