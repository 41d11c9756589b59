-- Move the rejected rows of a job to where its owner finds them, with the reason for each.
-- Called by: publish_staged. Locks: nothing. Result: how many rows.
CREATE OR REPLACE FUNCTION messages.store_rejected(p_job text, p_attempts uuid[])
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_did bigint;
BEGIN
  INSERT INTO messages.publish_rejected (job, nth, reason, given)
  SELECT p_job, row_number() OVER (), s.reason,
         coalesce(s.given, jsonb_strip_nulls(jsonb_build_object(
           'topic', s.topic, 'channel', s.channel, 'key', s.key, 'priority', s.priority, 'payload', s.payload::text,
           'body', encode(s.body, 'base64'), 'headers', s.headers::text, 'delay', s.delay, 'available_at', s.available_at,
           'ttl', s.ttl, 'expires_at', s.expires_at, 'max_attempts', s.max_attempts, 'on_conflict', s.on_conflict)))
  FROM messages.publish_stage AS s
  WHERE s.attempt = ANY (p_attempts) AND s.reason IS NOT NULL;
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_did;
END
$$;
