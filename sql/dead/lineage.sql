-- Returns a message, its ancestors and its descendants by redrives, the oldest first, at most 100 in each direction.
--
-- Result: `kind`: `ancestor`, `this`, `copy` (the one in `<topic>.dlq`), `descendant`. `state`: as in `messages.state`;
-- NULL = it is no longer in the archive.
-- Errors: none.
-- Locks: none.
-- Called by: `pgrouse dead show`.
CREATE OR REPLACE FUNCTION messages.lineage(p_id bigint)
RETURNS TABLE (id bigint, kind text, topic text, state text, redrives integer, archived_at timestamptz)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_before bigint[] := ARRAY[]::bigint[];
  v_after  bigint[] := ARRAY[]::bigint[];
  v_id     bigint   := p_id;
BEGIN
  LOOP
    SELECT coalesce(f.redriven_from, f.origin_id) INTO v_id
    FROM (
      SELECT m.redriven_from, m.origin_id FROM messages.message AS m WHERE m.id = v_id
      UNION ALL
      SELECT a.redriven_from, a.origin_id FROM messages.message_archive AS a WHERE a.id = v_id
    ) AS f;
    EXIT WHEN v_id IS NULL OR cardinality(v_before) = 100;
    v_before := v_id || v_before;
  END LOOP;
  v_id := p_id;
  LOOP
    SELECT r.message_id INTO v_id FROM messages.redrive_log AS r WHERE r.archived_id = v_id;
    EXIT WHEN v_id IS NULL OR cardinality(v_after) = 100;
    v_after := v_after || v_id;
  END LOOP;

  RETURN QUERY
  SELECT c.id, c.kind, s.topic, s.state, s.redrives, s.archived_at
  FROM (
    SELECT b.id, 'ancestor' AS kind, b.place AS place FROM unnest(v_before) WITH ORDINALITY AS b (id, place)
    UNION ALL
    SELECT p_id, 'this', 101
    UNION ALL
    SELECT l.message_id, 'copy', 102 FROM messages.dead_letter AS l WHERE l.origin_id = p_id
    UNION ALL
    SELECT a.id, 'descendant', 102 + a.place FROM unnest(v_after) WITH ORDINALITY AS a (id, place)
  ) AS c
  LEFT JOIN LATERAL (
    SELECT
      m.topic::text, m.redrives, NULL::timestamptz AS archived_at,
      messages.live_state(m.id, m.topic, m.channel, m.claim_id, m.available_at, m.history, messages.now()) AS state
    FROM messages.message AS m WHERE m.id = c.id
    UNION ALL
    SELECT a.topic, a.redrives, a.archived_at, a.result FROM messages.message_archive AS a WHERE a.id = c.id
  ) AS s ON true
  ORDER BY c.place;
END
$$;
