-- Gives a waiting message another payload or other headers. Its id, place, key and attempts do not change; a payload
-- replaces a body. For a dead message use `messages.redrive_edited`.
--
-- Arguments: NULL keeps the current value. `p_seen`: the md5 of the payload as text (of a body: of its bytes) that the
-- editor saw, so that two people do not overwrite each other's changes; NULL = do not compare.
-- Result: `edited`; `changed`: the message differs from `p_seen`; `running`: a handler already has it; `ended`: it has
-- ended or was never published. Only `edited` means that something was changed.
-- Errors: 22004 without an id, or with neither payload nor headers; 22023 for headers that are not an object, and for a
-- payload that replaces an [encrypted](encryption.md) one, because the new one would not be encrypted; PGR04 for a
-- payload larger than the topic's `max_payload_bytes`.
-- Locks: the row, waiting for any transaction that claims it right now: no handler sees a partial edit.
-- Repeat: safe.
-- Called by: operators.
-- Inside: An encrypted message, by its header or by how its body begins, takes no payload, which would not be
-- encrypted; new headers keep the one that names its key.
CREATE OR REPLACE FUNCTION messages.edit(
  p_id bigint, p_payload jsonb DEFAULT NULL, p_headers jsonb DEFAULT NULL, p_seen text DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_message record;
BEGIN
  IF p_id IS NULL OR num_nonnulls(p_payload, p_headers) = 0 THEN
    RAISE EXCEPTION 'edit needs the id of a message, and a payload or headers' USING ERRCODE = '22004';
  END IF;
  IF jsonb_typeof(p_headers) <> 'object' THEN
    RAISE EXCEPTION 'headers of an edit are a JSON %', jsonb_typeof(p_headers)
      USING ERRCODE = '22023', HINT = 'use an object';
  END IF;
  SELECT m.topic::text AS topic, m.claim_id, coalesce(md5(messages.display_json(m.payload)), md5(m.body)) AS seen,
         m.headers ? 'pgrouse-encrypted-by' OR substring(m.body FOR 4) = E'\\x93504752' AS is_encrypted
  INTO v_message
  FROM messages.message AS m WHERE m.id = p_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN 'ended';
  END IF;
  IF v_message.claim_id IS NOT NULL THEN
    RETURN 'running';
  END IF;
  IF v_message.seen <> p_seen THEN
    RETURN 'changed';
  END IF;
  IF p_payload IS NOT NULL AND v_message.is_encrypted THEN
    RAISE EXCEPTION 'message % is encrypted, a payload by hand would not be', p_id
      USING ERRCODE = '22023', HINT = 'cancel it, and publish another with the key';
  END IF;

  PERFORM messages.check_payload_size(
    v_message.topic, messages.jsonb_text_bytes(p_payload),
    (SELECT a.max_payload_bytes FROM messages.publish_policy(v_message.topic) AS a));
  UPDATE messages.message AS m
  SET payload = coalesce(p_payload, m.payload),
      body = CASE WHEN p_payload IS NULL THEN m.body END,
      headers = coalesce(messages.keep_key_header(p_headers, m.headers), m.headers)
  WHERE m.id = p_id;
  PERFORM messages.audit_action(
    'edit', v_message.topic, p_id::text,
    jsonb_build_object('edited', array_remove(ARRAY[
      CASE WHEN p_payload IS NOT NULL THEN 'payload' END, CASE WHEN p_headers IS NOT NULL THEN 'headers' END], NULL)));
  RETURN 'edited';
END
$$;
