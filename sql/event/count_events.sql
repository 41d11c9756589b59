-- Returns how many events and time-outs of a name a message has.
-- Called by: load_events, wait_for_event, check_signal. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.count_events(p_id bigint, p_name text)
RETURNS bigint
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  RETURN (
    SELECT count(messages.event_number(s.name, p_name)) FROM messages.step AS s WHERE s.message_id = p_id);
END
$$;
