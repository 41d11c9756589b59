-- Decide about blocked messages by their remaining dependencies: released if there is none, cancelled if a predecessor
-- ended badly and the message asks for that, forgotten if it is no longer live; else it stays blocked.
-- Called by: propagate_ends, propagate_missed_ends, unblock, which hold their rows of messages.blocked_message.
-- A released message becomes available at its publisher's time, or after the delay from now; its ttl, or the topic's,
-- counts from then. Notifies.
-- Locks: the messages, skipping those that another session holds (it edits one): the next tick checks these again.
-- Other rows that a cancellation needs (its dependencies, which may be locked) are waited for 200 ms; after that the
-- next tick does it, and the rest is not affected.
CREATE OR REPLACE FUNCTION messages.resolve_blocked(p_ids bigint[])
RETURNS void
LANGUAGE plpgsql
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
  -- Below an OR, EXISTS is not used: PostgreSQL 18 would read the whole table once to know all that could be asked for,
  -- whatever its settings say. The last dependency is asked for, because messages end in about the order of their ids:
  -- of a large group the first index entries are those of deleted rows, which are read again and again while a snapshot
  -- is held. And a failed one by the order of its index.
  v_settled := ARRAY(
    SELECT k.id FROM messages.blocked_message AS k
    WHERE k.id = ANY (p_ids)
      AND ((SELECT true FROM messages.message AS m WHERE m.id = k.id) IS NULL
        OR (
          SELECT true FROM messages.dependency AS g WHERE g.successor_id = k.id ORDER BY g.predecessor_id DESC LIMIT 1
        ) IS NULL
        OR (k.after_failed = 'cancel' AND (
          SELECT true FROM messages.dependency AS g WHERE g.successor_id = k.id AND g.failed_result IS NOT NULL
          ORDER BY g.failed_result LIMIT 1))));
  IF v_settled = '{}' THEN
    RETURN;
  END IF;
  v_live := ARRAY(
    SELECT m.id FROM messages.message AS m WHERE m.id = ANY (v_settled) ORDER BY m.id FOR UPDATE SKIP LOCKED);
  UPDATE messages.blocked_message AS k SET check_at = v_now
  WHERE k.id = ANY (v_settled) AND k.id NOT IN (SELECT l.id FROM unnest(v_live) AS l (id))
    AND EXISTS (SELECT FROM messages.message AS m WHERE m.id = ANY (ARRAY[k.id]));

  SELECT array_agg(d.id),
         array_agg(
           format('cancelled: message %s, after which it comes, ended as %s', d.predecessor_id, d.failed_result))
  INTO v_cancel, v_errors
  FROM (
    SELECT DISTINCT ON (g.successor_id) g.successor_id AS id, g.predecessor_id, g.failed_result
    FROM messages.dependency AS g
    WHERE g.successor_id = ANY (v_live)
    ORDER BY g.successor_id, g.failed_result NULLS LAST, g.predecessor_id) AS d;
  v_free := ARRAY(
    SELECT l.id FROM unnest(v_live) AS l (id) WHERE l.id NOT IN (SELECT c.id FROM unnest(v_cancel) AS c (id)));

  WITH released AS (
    UPDATE messages.message AS m
    SET available_at = t.available_at,
        expires_at = CASE
          WHEN t.ttl IS NOT NULL THEN least(t.available_at + t.ttl, '9000-01-01 00:00+00')
          WHEN m.expires_at < '9000-01-01 00:00+00' THEN m.expires_at
        END
    FROM messages.blocked_message AS k
    CROSS JOIN LATERAL (
      SELECT greatest(k.available_at, least(v_now + coalesce(k.delay, '0'), '9000-01-01 00:00+00')) AS available_at,
             coalesce(
               k.ttl, (
                 SELECT a.ttl FROM messages.message AS o CROSS JOIN LATERAL messages.publish_policy(o.topic) AS a
                 WHERE o.id = k.id)
             ) AS ttl
    ) AS t
    WHERE k.id = ANY (v_free) AND m.id = ANY (ARRAY[k.id])
    RETURNING m.topic::text AS topic, m.available_at
  )
  SELECT array_agg(DISTINCT r.topic), min(r.available_at) INTO v_topics, v_due FROM released AS r;
  WITH gone AS (
    DELETE FROM messages.blocked_message AS k
    WHERE k.id = ANY (v_settled)
      AND (k.id = ANY (v_free) OR (SELECT true FROM messages.message AS m WHERE m.id = k.id) IS NULL)
    RETURNING k.id
  )
  DELETE FROM messages.dependency AS g USING gone AS n WHERE g.successor_id = n.id;

  IF v_topics IS NOT NULL THEN
    PERFORM messages.notify_topics(v_topics, v_due);
  END IF;
  IF v_cancel IS NOT NULL THEN
    BEGIN
      PERFORM set_config('lock_timeout', '200ms', true);
      DELETE FROM messages.blocked_message AS k WHERE k.id = ANY (v_cancel);
      DELETE FROM messages.dependency AS g WHERE g.successor_id = ANY (v_cancel);
      PERFORM messages.archive(v_cancel, NULL, 'cancelled', v_errors, NULL, NULL, true);
      PERFORM set_config('lock_timeout', v_wait, true);
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      UPDATE messages.blocked_message AS k SET check_at = v_now WHERE k.id = ANY (v_cancel);
    END;
  END IF;
END
$$;
