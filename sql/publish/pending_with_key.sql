-- The pending message with a key: ready or delayed, and never attempted.
-- Called by: admit_message, publish_with_key, insert_or_merge. Locks: nothing. Result: its id; NULL = there is none.
CREATE OR REPLACE FUNCTION messages.pending_with_key(p_topic text, p_key text)
RETURNS bigint
LANGUAGE plpgsql
VOLATILE
AS $$
BEGIN
  RETURN (
    SELECT m.id FROM messages.message AS m
    WHERE m.topic = p_topic AND m.key = p_key AND m.attempts = 0 AND m.claim_id IS NULL);
END
$$;
