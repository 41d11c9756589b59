-- Turn dead messages into new ones that know their ancestors; their archive rows stay as they are.
-- Called by: redrive, redrive_where, redrive_edited, requeue_dead_letters. Not granted to any role.
-- Each is put back once, by whatever function: the primary key of redrive_log guards that. If the archive row is gone,
-- the live copy in <topic>.dlq is used instead. In every case a waiting copy ends as cancelled, so that only one of the
-- two is processed. p_edit: {"topic", "payload", "headers", "merge"}, all optional. p_rate: how many become available
-- per second, the first after p_delay. p_force: also those that were redriven max_redrives times. p_again: whether
-- those whose key another message has taken since are tried again. preview_redrive decides which of them come back, and
-- how; a key that is taken between that and the INSERT is no error either.
-- Locks: the rows that it inserts, in an order that all calls share; a concurrent call for the same message waits.
-- Result: one row per id. message_id: the new message, or the one that prevented it.
CREATE OR REPLACE FUNCTION messages.redrive_rows(
  p_ids bigint[], p_edit jsonb, p_rate double precision, p_delay interval, p_force boolean, p_again boolean DEFAULT true
)
RETURNS TABLE (archived_id bigint, message_id bigint, outcome text)
LANGUAGE plpgsql
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_judged messages.redriving[];
  v_logged messages.redriving[];
  v_old    bigint[];
  v_new    bigint[];
  v_not    bigint[];
BEGIN
  IF p_rate NOT BETWEEN 0.001 AND 1000000 THEN
    RAISE EXCEPTION 'rate of a redrive is %', p_rate
      USING ERRCODE = '22023', HINT = 'use 0.001 to 1000000 messages a second';
  END IF;
  IF p_delay NOT BETWEEN '0' AND '3650 days' THEN
    RAISE EXCEPTION 'delay of a redrive is %', p_delay
      USING ERRCODE = '22023', HINT = 'use an interval from 0 to 3650 days';
  END IF;

  SELECT array_agg((m.archived_id, m.archived_at, m.message_id, m.outcome, m.place)::messages.redriving)
  INTO v_judged
  FROM messages.preview_redrive(p_ids, p_edit ->> 'topic', p_force, p_edit ? 'payload') AS m;

  -- The ids are drawn in the order in which the messages died.
  WITH logged AS (
    INSERT INTO messages.redrive_log (archived_id, message_id, redriven_by)
    SELECT go.archived_id, nextval('messages.message_id_seq'), messages.actor()
    FROM (
      SELECT j.archived_id FROM unnest(v_judged) AS j WHERE j.outcome IN ('redriven', 'keyless') ORDER BY j.place
    ) AS go
    ON CONFLICT DO NOTHING
    RETURNING redrive_log.archived_id, redrive_log.message_id
  )
  -- Grouped, and not joined, as below: without hash joins each would be compared with each.
  SELECT array_agg((g.archived_id, g.archived_at, g.message_id, g.outcome, g.place)::messages.redriving)
  INTO v_logged
  FROM (
    SELECT u.archived_id, max(u.archived_at) AS archived_at, max(u.message_id) AS message_id,
           max(u.outcome) AS outcome, max(u.place) AS place
    FROM (
      SELECT l.archived_id, NULL::timestamptz AS archived_at, l.message_id, NULL AS outcome, NULL::bigint AS place
      FROM logged AS l
      UNION ALL
      SELECT j.archived_id, j.archived_at, NULL, j.outcome, j.place FROM unnest(v_judged) AS j
    ) AS u
    GROUP BY u.archived_id
    HAVING count(u.message_id) > 0
  ) AS g;

  -- By topic and key, so that two calls with the same keys wait for each other and never in a circle.
  WITH back AS (
    INSERT INTO messages.message (
      id, topic, channel, key, priority, payload, body, headers, state, available_at, max_attempts,
      timeout, backoff, retention, origin_id, original_topic, dlq_moved_at, redriven_from, redrives, batch_id)
    OVERRIDING SYSTEM VALUE
    SELECT
      b.message_id, b.topic, messages.replace_unprintable(b.channel), b.key, b.priority,
      CASE WHEN p_edit ? 'payload' THEN edited.payload ELSE b.payload END,
      CASE WHEN NOT coalesce(p_edit ? 'payload', false) THEN b.body END,
      CASE WHEN p_edit ? 'headers' THEN messages.keep_key_header(edited.headers, b.headers) ELSE b.headers END,
      b.state,
      v_now + coalesce(p_delay, '0') + make_interval(secs => coalesce(b.place / p_rate, 0)),
      b.max_attempts, b.timeout, b.backoff, b.retention, b.origin_id, b.original_topic, b.dlq_moved_at, b.archived_id,
      b.redrives + 1, b.batch_id
    FROM (
      SELECT
        l.message_id, l.place, l.archived_id, coalesce(p_edit ->> 'topic', d.topic) AS topic,
        CASE WHEN l.outcome = 'redriven' THEN d.key END AS key, d.channel, d.priority, d.payload, d.body, d.headers,
        d.state, d.max_attempts, d.timeout, d.backoff, d.retention,
        CASE WHEN edit.stays THEN d.origin_id END AS origin_id,
        CASE WHEN edit.stays THEN d.original_topic END AS original_topic,
        CASE WHEN edit.stays THEN d.dlq_moved_at END AS dlq_moved_at, d.redrives, d.batch_id
      FROM unnest(v_logged) AS l
      CROSS JOIN LATERAL (
        SELECT a.topic, a.channel, a.key, a.priority, a.payload, a.body, a.headers, a.state, a.max_attempts,
               a.timeout, a.backoff, a.retention, a.origin_id, a.original_topic, a.dlq_moved_at, a.redrives,
               a.batch_id
        FROM messages.message_archive AS a
        WHERE a.id = l.archived_id AND a.archived_at = l.archived_at
        UNION ALL
        SELECT m.original_topic, m.channel, NULL, m.priority, m.payload, m.body, m.headers, m.state, NULL,
               m.timeout, m.backoff, m.retention, NULL, NULL, NULL, m.redrives, NULL
        FROM messages.dead_letter AS c
        JOIN messages.message AS m ON m.id = ANY (ARRAY[c.message_id])
        WHERE c.origin_id = l.archived_id AND l.archived_at IS NULL
      ) AS d
      CROSS JOIN (SELECT NOT coalesce(p_edit ? 'topic', false) AS stays) AS edit
      ORDER BY 4, 5, 1
    ) AS b
    CROSS JOIN LATERAL (
      SELECT CASE WHEN (p_edit ->> 'merge')::boolean THEN messages.merge_patch(b.payload, p_edit -> 'payload')
        ELSE p_edit -> 'payload' END AS payload,
             CASE WHEN (p_edit ->> 'merge')::boolean THEN messages.merge_patch(b.headers, p_edit -> 'headers')
               ELSE p_edit -> 'headers' END AS headers
    ) AS edited
    ON CONFLICT (topic, key) WHERE key IS NOT NULL AND attempts = 0 AND claim_id IS NULL DO NOTHING
    RETURNING message.id
  )
  SELECT array_agg(g.archived_id) FILTER (WHERE g.is_back), array_agg(g.message_id) FILTER (WHERE g.is_back),
         array_agg(g.archived_id) FILTER (WHERE NOT g.is_back)
  INTO v_old, v_new, v_not
  FROM (
    SELECT max(u.archived_id) AS archived_id, u.message_id, bool_or(u.archived_id IS NULL) AS is_back
    FROM (
      SELECT NULL::bigint AS archived_id, b.id AS message_id FROM back AS b
      UNION ALL
      SELECT l.archived_id, l.message_id FROM unnest(v_logged) AS l
    ) AS u
    GROUP BY u.message_id
  ) AS g;
  -- By when they died, as their deaths were counted.
  INSERT INTO messages.dead_count (topic, result, redriven, died_at)
  SELECT d.topic, d.result, count(*), d.died_at
  FROM (
    SELECT a.topic, a.result, date_bin('10 minutes', a.archived_at, 'epoch') AS died_at
    FROM unnest(v_logged) AS l
    CROSS JOIN LATERAL (
      SELECT m.topic, m.result, m.archived_at FROM messages.message_archive AS m
      WHERE m.id = ANY (ARRAY[l.archived_id]) AND m.archived_at = l.archived_at) AS a
    -- NOT IN, which is hashed: IN would be a join.
    WHERE l.archived_id NOT IN (SELECT n.id FROM unnest(v_not) AS n (id))) AS d
  GROUP BY d.topic, d.result, d.died_at
  ORDER BY d.topic, d.result, d.died_at;
  INSERT INTO messages.predecessor_list (message_id, ids, workflow_id)
  SELECT h.new, p.ids, p.workflow_id
  FROM unnest(v_old, v_new) AS h (old, new)
  JOIN messages.predecessor_list AS p ON p.message_id = ANY (ARRAY[h.old]);
  IF pg_sequence_last_value('messages.awaited_flag') > 1 THEN
    PERFORM messages.transfer_to_redriven(v_old, v_new);
  END IF;
  IF pg_sequence_last_value('messages.batch_flag') > 1 THEN
    PERFORM messages.return_to_batches(v_new);
  END IF;

  -- Some rows were not inserted: their keys were taken at this moment. A second check finds these keys.
  DELETE FROM messages.redrive_log AS r
  WHERE r.archived_id = ANY (v_not) AND r.message_id NOT IN (SELECT b.id FROM unnest(v_new) AS b (id));
  -- Copies of messages that were put back before count too: they were processed then, and may wait now.
  PERFORM messages.cancel_dlq_copies(ARRAY(
    SELECT j.archived_id FROM unnest(v_judged) AS j
    WHERE j.outcome IN ('redriven', 'keyless', 'redriven_before')
      AND j.archived_id NOT IN (SELECT n.id FROM unnest(v_not) AS n (id))));

  RETURN QUERY
  SELECT g.archived_id, coalesce(g.new_id, g.message_id, r.message_id),
         CASE WHEN g.new_id IS NULL AND g.outcome IN ('redriven', 'keyless') THEN 'redriven_before' ELSE g.outcome END
  FROM (
    SELECT u.archived_id, max(u.new_id) AS new_id, max(u.message_id) AS message_id, max(u.outcome) AS outcome
    FROM (
      SELECT j.archived_id, NULL::bigint AS new_id, j.message_id, j.outcome FROM unnest(v_judged) AS j
      UNION ALL
      SELECT l.archived_id, l.message_id, NULL, NULL FROM unnest(v_logged) AS l
    ) AS u
    GROUP BY u.archived_id
  ) AS g
  LEFT JOIN messages.redrive_log AS r ON r.archived_id = g.archived_id AND g.new_id IS NULL
  WHERE g.archived_id NOT IN (SELECT n.id FROM unnest(v_not) AS n (id))
  ORDER BY 1;
  IF v_not IS NOT NULL AND p_again THEN
    RETURN QUERY SELECT n.* FROM messages.redrive_rows(v_not, p_edit, p_rate, p_delay, p_force, false) AS n;
  ELSIF v_not IS NOT NULL THEN
    RETURN QUERY SELECT n.id, NULL::bigint, 'superseded' FROM unnest(v_not) AS n (id);
  END IF;
END
$$;

-- Apply a JSON merge patch (RFC 7396): objects are merged key by key, null removes a key, anything else replaces.
-- Called by: redrive_rows, and itself. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.merge_patch(p_target jsonb, p_patch jsonb)
RETURNS jsonb
LANGUAGE plpgsql
IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
  v_result jsonb := CASE WHEN jsonb_typeof(p_target) = 'object' THEN p_target ELSE '{}' END;
  v_each   record;
BEGIN
  IF p_patch IS NULL OR jsonb_typeof(p_patch) <> 'object' THEN
    RETURN p_patch;
  END IF;
  FOR v_each IN SELECT e.key, e.value FROM jsonb_each(p_patch) AS e LOOP
    v_result := CASE
      WHEN v_each.value = 'null' THEN v_result - v_each.key
      ELSE v_result || jsonb_build_object(v_each.key, messages.merge_patch(v_result -> v_each.key, v_each.value))
    END;
  END LOOP;
  RETURN v_result;
END
$$;

-- Transfer what belongs to dead messages to the messages that a redrive made of them: saved steps and successors.
-- Called by: redrive_rows, only while the flag messages.awaited_flag is raised. p_topics: of the new messages; if the
-- topic changes, the steps stay behind, since another handler has other steps. Signals that came are steps, too; a wait
-- that timed out begins again: otherwise a message that died of it would die of it again.
-- Locks: the rows of the steps. The successors are updated when the transaction commits (the trigger
-- propagate_ends_at_commit).
CREATE OR REPLACE FUNCTION messages.transfer_to_redriven(p_old bigint[], p_new bigint[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_told bigint[];
BEGIN
  DELETE FROM messages.step AS s
  WHERE s.message_id = ANY (p_old)
    AND (s.name = 'event:wait' OR s.name LIKE 'event:%' AND s.result ? 'timed_out');
  UPDATE messages.step AS s
  SET message_id = h.new
  FROM unnest(p_old, p_new) AS h (old, new)
  JOIN messages.message AS m ON m.id = ANY (ARRAY[h.new])
  WHERE s.message_id = ANY (ARRAY[h.old])
    AND NOT EXISTS (SELECT FROM messages.message_archive AS a WHERE a.id = h.old AND a.topic <> m.topic);
  v_told := ARRAY(
    SELECT h.old FROM unnest(p_old) AS h (old)
    WHERE (SELECT true FROM messages.dependency AS g WHERE g.predecessor_id = h.old LIMIT 1));
  IF v_told <> '{}' THEN
    PERFORM messages.add_end_events(v_told, 'redriven');
  END IF;
END
$$;
