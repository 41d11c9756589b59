-- Returns how many more messages a topic with max_depth can take, counting those that the running statement has
-- inserted.
-- Called by: admit_message, for topics that drop what does not fit: what is dropped must be decided row by row.
-- Locks: the topic's row of depth, until the transaction ends. What is left for the statement is kept in a setting of
-- the transaction, so that the row is read once and not for each message; the trigger apply_publish_policies clears it
-- at the end of the statement.
CREATE OR REPLACE FUNCTION messages.depth_left(p_topic text, p_max_depth bigint)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_room jsonb := coalesce(nullif(current_setting('messages.depth_left', true), ''), '{}')::jsonb;
BEGIN
  IF NOT v_room ? p_topic THEN
    v_room := v_room || jsonb_build_object(p_topic, p_max_depth - messages.lock_depth(p_topic));
  END IF;
  PERFORM set_config(
    'messages.depth_left', (v_room || jsonb_build_object(p_topic, (v_room ->> p_topic)::bigint - 1))::text, true);
  RETURN (v_room ->> p_topic)::bigint;
END
$$;
