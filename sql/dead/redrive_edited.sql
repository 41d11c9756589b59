-- Redrives one dead message with another payload, other headers, or another topic; the archive row does not change. Key
-- policy and limit are those of the target topic.
--
-- Arguments: NULL keeps the old value. With `p_merge`, payload and headers are merged into the old ones by RFC 7396:
-- objects key by key, null removes a key, anything else replaces the old value; without it they replace the old ones. A
-- payload replaces a body.
-- Result: as `messages.redrive`.
-- Errors: 22023 for a topic that is not a valid name or ends with `.dlq`, for headers that are not an object, and for a
-- payload that replaces an [encrypted](encryption.md) one.
-- Locks: as `messages.redrive`.
-- Repeat: safe.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.redrive_edited(
  p_id      bigint,
  p_payload jsonb   DEFAULT NULL,
  p_headers jsonb   DEFAULT NULL,
  p_topic   text    DEFAULT NULL,
  p_merge   boolean DEFAULT true,
  p_force   boolean DEFAULT false
)
RETURNS TABLE (archived_id bigint, message_id bigint, outcome text)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_back record;
BEGIN
  -- The domains do not check this: their errors name no setting.
  IF p_topic !~ '^[A-Za-z0-9][A-Za-z0-9._:-]*$' OR octet_length(p_topic) > 200 THEN
    RAISE EXCEPTION 'topic of a redrive is "%"', p_topic
      USING ERRCODE = '22023', HINT = 'use 1 to 200 of A-Z a-z 0-9 . _ : - with a letter or digit first';
  END IF;
  IF right(p_topic, 4) = '.dlq' THEN
    RAISE EXCEPTION 'topic of a redrive is "%"', p_topic
      USING ERRCODE = '22023', HINT = 'use another: topics that end with .dlq are filled by dead_letter alone';
  END IF;
  IF jsonb_typeof(p_headers) <> 'object' THEN
    RAISE EXCEPTION 'headers of a redrive are a JSON %', jsonb_typeof(p_headers)
      USING ERRCODE = '22023', HINT = 'use an object';
  END IF;
  IF p_payload IS NOT NULL AND (
    EXISTS (
      SELECT FROM messages.message_archive AS a
      WHERE a.id = p_id AND (a.headers ? 'pgrouse-encrypted-by' OR substring(a.body FOR 4) = E'\\x93504752'))
    OR EXISTS (
      SELECT FROM messages.dead_letter AS c JOIN messages.message AS m ON m.id = c.message_id
      WHERE c.origin_id = p_id
        AND (m.headers ? 'pgrouse-encrypted-by' OR substring(m.body FOR 4) = E'\\x93504752'))) THEN
    RAISE EXCEPTION 'message % is encrypted, a payload by hand would not be', p_id
      USING ERRCODE = '22023', HINT = 'redrive it as it is, or publish another with the key';
  END IF;
  SELECT b.*
  INTO v_back
  FROM messages.redrive_rows(
    ARRAY[p_id],
    -- Nulls are not stripped in it: a payload may be JSON null.
    CASE WHEN p_payload IS NULL THEN '{}' ELSE jsonb_build_object('payload', p_payload) END
      || CASE WHEN p_headers IS NULL THEN '{}' ELSE jsonb_build_object('headers', p_headers) END
      || CASE WHEN p_topic IS NULL THEN '{}' ELSE jsonb_build_object('topic', p_topic) END
      || jsonb_build_object('merge', p_merge),
    NULL, NULL, p_force) AS b;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  PERFORM messages.audit_redrive(
    'redrive_edited', ARRAY[v_back.archived_id], ARRAY[v_back.message_id], ARRAY[v_back.outcome],
    jsonb_build_object('edited', array_remove(ARRAY[
      CASE WHEN p_topic IS NOT NULL THEN 'topic' END, CASE WHEN p_payload IS NOT NULL THEN 'payload' END,
      CASE WHEN p_headers IS NOT NULL THEN 'headers' END], NULL), 'force', nullif(p_force, false)));
  RETURN QUERY SELECT v_back.archived_id, v_back.message_id, v_back.outcome;
END
$$;
