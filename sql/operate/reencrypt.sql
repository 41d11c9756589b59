-- Stores the contents of waiting [encrypted](encryption.md) messages encrypted with another key. The server has no key
-- and does not verify the new contents; it only replaces envelopes with envelopes.
--
-- Arguments: `p_seen`: the md5 of the md5 of the body and the md5 of the checkpoint's text (each empty if there is
-- none), as the caller read them; a message whose contents have changed since is not touched. NULL in `p_bodies` or
-- `p_states` keeps the current value. `p_key`: the name of the new key, which is written to the header.
-- Result: the ids that were changed. Messages that are running, or were claimed or changed in the meantime, are not
-- among them.
-- Errors: 22023 for an invalid name of a key.
-- Locks: the rows, in the order of their ids; rows that other transactions hold are skipped.
-- Repeat: safe. Notifies for the topics: a concurrent claim has skipped the rows.
-- Called by: operators, by `pgrouse crypto rotate`.
CREATE OR REPLACE FUNCTION messages.reencrypt(
  p_ids bigint[], p_seen text[], p_bodies bytea[], p_states jsonb[], p_key text
)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_held   bigint[];
  v_ids    bigint[];
  v_topics text[];
BEGIN
  IF p_key !~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$' THEN
    RAISE EXCEPTION 'key of a reencrypt is "%"', p_key
      USING ERRCODE = '22023', HINT = 'use 1 to 63 of A-Z a-z 0-9 . _ - with a letter or digit first';
  END IF;
  SELECT array_agg(h.id) INTO v_held
  FROM (
    SELECT m.id FROM messages.message AS m
    WHERE m.id = ANY (p_ids) AND m.claim_id IS NULL ORDER BY m.id FOR NO KEY UPDATE SKIP LOCKED
  ) AS h;
  WITH changed AS (
    UPDATE messages.message AS m
    SET body = coalesce(n.body, m.body),
        state = coalesce(n.state::messages.given_json, m.state),
        headers = CASE WHEN n.body IS NULL THEN m.headers
                  ELSE coalesce(m.headers, '{}') || jsonb_build_object('pgrouse-encrypted-by', p_key) END
    FROM unnest(p_ids, p_seen, p_bodies, p_states) AS n (id, seen, body, state)
    WHERE m.id = ANY (ARRAY[n.id]) AND m.id IN (SELECT h.id FROM unnest(v_held) AS h (id))
      -- From one envelope to another: nothing else is written by this way.
      AND (n.body IS NULL OR (substring(m.body FOR 4) = E'\\x93504752' AND substring(n.body FOR 4) = E'\\x93504752'))
      AND (n.state IS NULL OR (m.state ? 'pgrouse-encrypted-by' AND n.state ? 'pgrouse-encrypted-by'))
      AND n.seen = md5(coalesce(md5(m.body), '') || coalesce(md5(m.state::text), ''))
    RETURNING m.id, m.topic::text AS topic
  )
  SELECT coalesce(array_agg(c.id ORDER BY c.id), '{}'), array_agg(DISTINCT c.topic) INTO v_ids, v_topics
  FROM changed AS c;
  PERFORM messages.notify_topics(v_topics, messages.now());
  PERFORM messages.audit_messages('reencrypt', v_topics, v_ids);
  RETURN v_ids;
END
$$;
