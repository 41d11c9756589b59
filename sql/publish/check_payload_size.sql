-- Refuse a payload or body that is larger than the max_payload_bytes of its topic. JSON is measured as text.
-- Called by: the trigger admit_message, insert_or_merge. p_max NULL = no limit. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.check_payload_size(p_topic text, p_bytes bigint, p_max integer)
RETURNS void
LANGUAGE plpgsql
IMMUTABLE
AS $$
BEGIN
  IF p_bytes > p_max THEN
    RAISE EXCEPTION 'a message of topic % has % bytes, max_payload_bytes is %', p_topic, p_bytes, p_max
      USING ERRCODE = 'PGR04', HINT = 'store it elsewhere and publish where it is, or raise max_payload_bytes';
  END IF;
END
$$;
