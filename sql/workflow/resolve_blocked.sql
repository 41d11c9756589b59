-- Settle what becomes of parked messages, by the edges that they have left: released if there is none, cancelled if one of those that they come
-- after ended badly and they want that, forgotten if they are not live any more; else they go on waiting.
-- Called by: pass_on, follow_ends, unpark, which hold their parked rows.
-- Available at the time that their publisher wanted, or after the delay, from now on; and so counts their ttl, or the topic's. Rings.
-- Locks: the messages, passing over those that somebody holds right now (he edits one): the next tick looks at these again. What a cancellation
-- needs besides (its edges, which somebody may hold) is waited for 200 ms: then it is the next tick's, and stops nothing else.
CREATE OR REPLACE FUNCTION messages.release_parked(p_ids bigint[])
RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
  v_now      timestamptz := messages.now();
  v_live     bigint[];
  v_settled  bigint[];
  v_cancel   bigint[];
  v_errors   text[];
  v_free     bigint[];
  v_topics   text[];
  v_due      timestamptz;
  v_wait     text := current_setting('lock_timeout');
BEGIN
  IF p_ids = '{}' THEN
    RETURN;
  END IF;
  -- Where an OR is, not EXISTS: PostgreSQL 18 would read the whole table once to know all that could be asked for, whatever its settings say.
  v_settled := ARRAY(
    SELECT k.id FROM messages.parked AS k
    WHERE k.id = ANY (p_ids)
      AND ((SELECT true FROM messages.message AS m WHERE m.id = k.id) IS NULL
        OR (SELECT true FROM messages.edge AS g WHERE g.successor_id = k.id LIMIT 1) IS NULL
        OR (k.after_failed = 'cancel' AND (SELECT true FROM messages.edge AS g WHERE g.successor_id = k.id AND g.died IS NOT NULL LIMIT 1))));
  IF v_settled = '{}' THEN
    RETURN;
  END IF;
  v_live := ARRAY(SELECT m.id FROM messages.message AS m WHERE m.id = ANY (v_settled) ORDER BY m.id FOR UPDATE SKIP LOCKED);
  UPDATE messages.parked AS k SET look_at = v_now
  WHERE k.id = ANY (v_settled) AND k.id <> ALL (v_live) AND EXISTS (SELECT FROM messages.message AS m WHERE m.id = k.id);

  SELECT array_agg(d.id), array_agg(format('cancelled: message %s, after which it comes, ended as %s', d.predecessor_id, d.died))
  INTO v_cancel, v_errors
  FROM (
    SELECT DISTINCT ON (g.successor_id) g.successor_id AS id, g.predecessor_id, g.died
    FROM messages.edge AS g
    WHERE g.successor_id = ANY (v_live)
    ORDER BY g.successor_id, g.died NULLS LAST, g.predecessor_id) AS d;
  v_free := ARRAY(SELECT l.id FROM unnest(v_live) AS l (id) WHERE l.id <> ALL (coalesce(v_cancel, '{}')));

  WITH released AS (
    UPDATE messages.message AS m
    SET available_at = t.available_at,
        expires_at = CASE
          WHEN t.ttl IS NOT NULL THEN least(t.available_at + t.ttl, '9000-01-01 00:00+00')
          WHEN m.expires_at < '9000-01-01 00:00+00' THEN m.expires_at
        END
    FROM messages.parked AS k
    CROSS JOIN LATERAL (
      SELECT greatest(k.available_at, least(v_now + coalesce(k.delay, '0'), '9000-01-01 00:00+00')) AS available_at,
             coalesce(k.ttl, (SELECT a.ttl FROM messages.message AS o CROSS JOIN LATERAL messages.admission(o.topic) AS a WHERE o.id = k.id)) AS ttl
    ) AS t
    WHERE k.id = ANY (v_free) AND m.id = k.id
    RETURNING m.topic::text AS topic, m.available_at
  )
  SELECT array_agg(DISTINCT r.topic), min(r.available_at) INTO v_topics, v_due FROM released AS r;
  WITH gone AS (
    DELETE FROM messages.parked AS k
    WHERE k.id = ANY (v_settled) AND (k.id = ANY (v_free) OR (SELECT true FROM messages.message AS m WHERE m.id = k.id) IS NULL)
    RETURNING k.id
  )
  DELETE FROM messages.edge AS g USING gone AS n WHERE g.successor_id = n.id;

  IF v_topics IS NOT NULL THEN
    PERFORM messages.ring(v_topics, v_due);
  END IF;
  IF v_cancel IS NOT NULL THEN
    BEGIN
      PERFORM set_config('lock_timeout', '200ms', true);
      DELETE FROM messages.parked AS k WHERE k.id = ANY (v_cancel);
      DELETE FROM messages.edge AS g WHERE g.successor_id = ANY (v_cancel);
      PERFORM messages.archive(v_cancel, array_fill(NULL::bigint, ARRAY[cardinality(v_cancel)]), 'cancelled', v_errors, NULL, NULL, true);
      PERFORM set_config('lock_timeout', v_wait, true);
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      UPDATE messages.parked AS k SET look_at = v_now WHERE k.id = ANY (v_cancel);
    END;
  END IF;
END
$$;
