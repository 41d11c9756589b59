-- Publish the staged rows that have a key, and mark those whose key is taken.
-- Called by: publish_staged. Of several rows with one key the first that was staged is published, and the others are treated as later
-- publishes.
-- Those with on_conflict error and ignore go in one statement. Those with replace and append go one by one, as by messages.publish, and so
-- do all whose topic has a key_ttl or subscribers, or drops what does not fit: only publish can decide about these.
-- Result: how many were published, ignored and dropped. Locks: as the INSERTs, in the order of their keys.
CREATE OR REPLACE FUNCTION messages.publish_staged_with_key(p_attempts uuid[], OUT published bigint, OUT ignored bigint, OUT dropped bigint)
LANGUAGE plpgsql
AS $$
DECLARE
  v_now  messages.moment := clock_timestamp();
  v_hard text[];
  v_row  record;
  v_outcome text;
BEGIN
  IF messages.has_policies() THEN
    SELECT array_agg(d.topic)
    INTO v_hard
    FROM (
      SELECT DISTINCT s.topic::text AS topic
      FROM messages.publish_stage AS s WHERE s.attempt = ANY (p_attempts) AND s.reason IS NULL AND s.key IS NOT NULL
    ) AS d
    CROSS JOIN LATERAL messages.publish_policy(d.topic) AS a
    WHERE a.key_ttl IS NOT NULL OR (a.max_depth IS NOT NULL AND a.on_full = 'drop')
      OR EXISTS (SELECT FROM messages.subscription AS u WHERE u.topic = d.topic);
  END IF;
  v_hard := coalesce(v_hard, '{}');

  WITH easy AS (
    SELECT s.ctid AS place, s.*, row_number() OVER (PARTITION BY s.topic, s.key ORDER BY s.ctid) AS turn
    FROM messages.publish_stage AS s
    WHERE s.attempt = ANY (p_attempts) AND s.reason IS NULL AND s.key IS NOT NULL
      AND coalesce(s.on_conflict, 'error') IN ('error', 'ignore') AND s.topic <> ALL (v_hard)
  ), fresh AS (
    INSERT INTO messages.message AS m
      (topic, channel, key, priority, payload, body, headers, available_at, expires_at, max_attempts)
    SELECT e.topic, e.channel, e.key, e.priority, e.payload, e.body, e.headers,
           coalesce(e.available_at, v_now + e.delay, v_now),
           CASE
             WHEN e.ttl IS NULL THEN e.expires_at
             ELSE least(greatest(coalesce(e.available_at, v_now + e.delay, v_now), v_now) + e.ttl, '9000-01-01 00:00+00')
           END,
           e.max_attempts
    FROM easy AS e
    WHERE e.turn = 1
    ORDER BY e.topic, e.key
    ON CONFLICT (topic, key) WHERE key IS NOT NULL AND attempts = 0 AND claim_id IS NULL DO NOTHING
    RETURNING m.topic, m.key
  ), late AS (
    SELECT e.place, e.topic, e.key, e.on_conflict
    FROM easy AS e
    LEFT JOIN fresh AS f ON f.topic = e.topic AND f.key = e.key AND e.turn = 1
    WHERE f.topic IS NULL
  ), marked AS (
    UPDATE messages.publish_stage AS s
    SET reason = format('key "%s" of topic %s is in use', l.key, l.topic)
    FROM late AS l
    WHERE s.ctid = l.place AND l.on_conflict IS DISTINCT FROM 'ignore'
  )
  SELECT (SELECT count(*) FROM fresh), (SELECT count(*) FROM late AS l WHERE l.on_conflict = 'ignore'), 0 INTO published, ignored, dropped;

  FOR v_row IN
    SELECT s.ctid AS place, s.*
    FROM messages.publish_stage AS s
    WHERE s.attempt = ANY (p_attempts) AND s.reason IS NULL AND s.key IS NOT NULL
      AND (s.on_conflict IN ('replace', 'append') OR s.topic = ANY (v_hard))
    ORDER BY s.topic, s.key, s.ctid
  LOOP
    BEGIN
      SELECT p.outcome INTO v_outcome
      FROM messages.publish(
        v_row.topic, v_row.payload, v_row.key, coalesce(v_row.on_conflict, 'error'), v_row.body, v_row.headers, v_row.channel, v_row.priority,
        v_row.delay, v_row.available_at,
        -- GREATEST passes over NULL: a row without a time to expire would be over at once.
        coalesce(v_row.ttl, CASE WHEN v_row.expires_at IS NOT NULL THEN
          greatest('0', v_row.expires_at - greatest(coalesce(v_row.available_at, v_now + v_row.delay), v_now)) END),
        v_row.max_attempts) AS p;
      published := published + (v_outcome IN ('inserted', 'replaced', 'appended'))::integer;
      ignored := ignored + (v_outcome IN ('ignored', 'held'))::integer;
      dropped := dropped + (v_outcome = 'dropped')::integer;
    EXCEPTION WHEN unique_violation OR invalid_parameter_value OR check_violation OR SQLSTATE 'PGR04' THEN
      UPDATE messages.publish_stage AS s SET reason = SQLERRM WHERE s.ctid = v_row.place;
    END;
  END LOOP;
END
$$;
