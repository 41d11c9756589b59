-- Publish the staged rows that have a key, and mark those whose key is taken.
-- Called by: publish_staged. Of several rows with one key those with on_conflict error and ignore come first, in the
-- order in which they were staged: the first is published, and the others are treated as later publishes. Those with
-- replace and append come after them. Rows with on_conflict error and ignore go in one statement (insert_staged_keys).
-- Those with replace and append go key by key (merge_staged_keys), and so do all whose topic has a key_ttl or
-- subscribers, or drops what does not fit: there each key needs a decision. No statement here joins what was staged
-- with anything: a stage has no statistics, and a join planned for one row takes hours for a million.
-- Result: how many were published, ignored and dropped. Locks: as the INSERTs; each of the two in the order of topics
-- and keys.
CREATE OR REPLACE FUNCTION messages.publish_staged_with_key(
  p_attempts uuid[], OUT published bigint, OUT ignored bigint, OUT dropped bigint
)
LANGUAGE plpgsql
AS $$
DECLARE
  -- A message must not seem older than its transaction, which has its number by now.
  v_now    messages.moment := clock_timestamp();
  v_hard   text[];
  v_merged record;
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
      OR EXISTS (SELECT FROM messages.subscription AS u WHERE u.topic = ANY (messages.names_of(d.topic)));
  END IF;
  dropped := 0;
  SELECT i.published, i.ignored INTO published, ignored
  FROM messages.insert_staged_keys(p_attempts, v_hard, v_now) AS i;
  v_merged := messages.merge_staged_keys(p_attempts, v_hard, v_now);
  published := published + v_merged.published;
  ignored := ignored + v_merged.ignored;
  dropped := dropped + v_merged.dropped;
END
$$;

-- Publish the staged rows whose key is published or not, and mark those that are not and whose on_conflict is error.
-- Called by: publish_staged_with_key. p_hard: the topics that merge_staged_keys publishes to.
-- The keys that were inserted are sorted among the rows, and not joined with them: a row is late unless it is the first
-- of its key, and its key was inserted. Locks: as the INSERT, in the order of topics and keys.
CREATE OR REPLACE FUNCTION messages.insert_staged_keys(
  p_attempts uuid[], p_hard text[], p_now timestamptz, OUT published bigint, OUT ignored bigint
)
LANGUAGE sql
AS $$
  WITH easy AS MATERIALIZED (
    SELECT s.ctid AS place, s.*, row_number() OVER (PARTITION BY s.topic, s.key ORDER BY s.ctid) AS turn
    FROM messages.publish_stage AS s
    WHERE s.attempt = ANY (p_attempts) AND s.reason IS NULL AND s.key IS NOT NULL
      AND coalesce(s.on_conflict, 'error') IN ('error', 'ignore')
      AND s.topic::text NOT IN (SELECT h.topic FROM unnest(p_hard) AS h (topic))
  ), fresh AS (
    INSERT INTO messages.message AS m
      (topic, channel, key, priority, payload, body, headers, available_at, expires_at, max_attempts, timeout,
       backoff, retention, batch_id)
    SELECT e.topic, e.channel, e.key, e.priority, e.payload, e.body, e.headers,
           messages.staged_start(e.available_at, e.delay, p_now),
           messages.staged_end(e.available_at, e.delay, e.ttl, e.expires_at, p_now),
           e.max_attempts, e.timeout, e.backoff, e.retention, e.batch_id
    FROM easy AS e
    WHERE e.turn = 1
    ORDER BY e.topic, e.key
    ON CONFLICT (topic, key) WHERE key IS NOT NULL AND attempts = 0 AND claim_id IS NULL DO NOTHING
    RETURNING m.topic, m.key
  ), late AS (
    SELECT a.place, a.topic, a.key, a.on_conflict
    FROM (
      SELECT u.*, count(*) FILTER (WHERE u.place IS NULL) OVER (PARTITION BY u.topic, u.key) AS inserted
      FROM (
        SELECT e.place, e.topic, e.key, e.on_conflict, e.turn FROM easy AS e
        UNION ALL
        SELECT NULL, f.topic, f.key, NULL, NULL FROM fresh AS f
      ) AS u
    ) AS a
    WHERE a.place IS NOT NULL AND NOT (a.turn = 1 AND a.inserted = 1)
  ), marked AS (
    UPDATE messages.publish_stage AS s
    SET reason = format('key "%s" of topic %s is in use', l.key, l.topic)
    FROM late AS l
    WHERE s.ctid = l.place AND l.on_conflict IS DISTINCT FROM 'ignore'
  )
  SELECT (SELECT count(*) FROM fresh), (SELECT count(*) FROM late AS l WHERE l.on_conflict = 'ignore')
$$;

-- Publish the staged rows that change the message which waits with their key, and all of some topics.
-- Called by: publish_staged_with_key. p_hard: those topics. What several rows do to one key is done at most twice: all
-- rows up to the last one with replace are one replacement, and what is appended after it is appended at once, or MiB
-- by MiB. Done row by row, each would leave a version of the message that the next one has to pass.
-- Locks: as messages.publish, in the order of topics and keys. Result: how many rows were published, ignored and
-- dropped.
CREATE OR REPLACE FUNCTION messages.merge_staged_keys(
  p_attempts uuid[], p_hard text[], p_now timestamptz, OUT published bigint, OUT ignored bigint, OUT dropped bigint
)
LANGUAGE plpgsql
AS $$
DECLARE
  v_part record;
  v_done record;
BEGIN
  published := 0;
  ignored := 0;
  dropped := 0;
  FOR v_part IN
    SELECT p.mode, array_agg(p.place ORDER BY p.place) AS places
    FROM (
      SELECT k.place, k.topic, k.key,
             CASE WHEN k.step = 0 THEN k.mode WHEN k.replacements > 0 THEN 'replace' ELSE 'append' END AS mode,
             k.step + (k.step = 1 AND k.replacements = 0)::integer AS step,
             CASE
               WHEN k.step = 0 THEN row_number() OVER w
               WHEN k.replacements = 0 THEN sum(k.bytes) OVER w / (1024 * 1024)
             END AS part
      FROM (
        SELECT s.ctid AS place, s.topic, s.key, c.mode, (c.mode IN ('replace', 'append'))::integer AS step,
               CASE WHEN c.mode = 'append' THEN octet_length(s.payload::text) END AS bytes,
               count(*) FILTER (WHERE c.mode = 'replace') OVER (
                 PARTITION BY s.topic, s.key ORDER BY s.ctid DESC
               ) AS replacements
        FROM messages.publish_stage AS s
        CROSS JOIN LATERAL (SELECT coalesce(s.on_conflict, 'error') AS mode) AS c
        WHERE s.attempt = ANY (p_attempts) AND s.reason IS NULL AND s.key IS NOT NULL
          AND (
            s.on_conflict IN ('replace', 'append') OR s.topic::text IN (SELECT h.topic FROM unnest(p_hard) AS h (topic))
          )
      ) AS k
      WINDOW w AS (PARTITION BY k.topic, k.key, k.step, k.replacements = 0 ORDER BY k.place)
    ) AS p
    GROUP BY p.topic, p.key, p.step, p.part, p.mode
    ORDER BY p.topic, p.key, p.step, p.part
  LOOP
    v_done := messages.publish_staged_part(v_part.places, v_part.mode, p_now);
    published := published + v_done.published;
    ignored := ignored + v_done.ignored;
    dropped := dropped + v_done.dropped;
  END LOOP;
  PERFORM set_config('messages.on_conflict', '', true);
END
$$;

-- Publish staged rows of one key and one on_conflict as one message, or find those of them that cannot be published, by
-- halves.
-- Called by: merge_staged_keys, itself. p_places: the rows in the order in which they were staged. Locks: as
-- messages.publish.
CREATE OR REPLACE FUNCTION messages.publish_staged_part(
  p_places tid[], p_mode text, p_now timestamptz, OUT published bigint, OUT ignored bigint, OUT dropped bigint
)
LANGUAGE plpgsql
AS $$
DECLARE
  v_count   integer := cardinality(p_places);
  v_outcome text;
  v_first   record;
  v_second  record;
  v_problem text;
BEGIN
  BEGIN
    -- The copies for subscribers do the same with their keys; they are made by a trigger.
    PERFORM set_config('messages.on_conflict', p_mode, true);
    SELECT p.outcome INTO v_outcome
    FROM messages.publish_with_key(
      messages.gather_staged(p_places, p_mode, p_now), p_mode,
      (SELECT s.expires_at IS NOT NULL FROM messages.publish_stage AS s WHERE s.ctid = p_places[v_count])) AS p;
    published := CASE WHEN v_outcome IN ('inserted', 'replaced', 'appended') THEN v_count ELSE 0 END;
    ignored := CASE WHEN v_outcome IN ('ignored', 'held') THEN v_count ELSE 0 END;
    dropped := CASE WHEN v_outcome = 'dropped' THEN v_count ELSE 0 END;
    RETURN;
  EXCEPTION WHEN unique_violation OR invalid_parameter_value OR check_violation OR SQLSTATE 'PGR04' THEN
    v_problem := SQLERRM;
  END;
  IF v_count = 1 THEN
    UPDATE messages.publish_stage AS s SET reason = left(v_problem, 1000) WHERE s.ctid = p_places[1];
    SELECT 0, 0, 0 INTO published, ignored, dropped;
    RETURN;
  END IF;
  v_first := messages.publish_staged_part(p_places[:v_count / 2], p_mode, p_now);
  v_second := messages.publish_staged_part(p_places[v_count / 2 + 1:], p_mode, p_now);
  published := v_first.published + v_second.published;
  ignored := v_first.ignored + v_second.ignored;
  dropped := v_first.dropped + v_second.dropped;
END
$$;

-- The one message that staged rows of one key make: it begins as the first says, and ends and contains what the last
-- says, or what all append.
-- Called by: publish_staged_part. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.gather_staged(p_places tid[], p_mode text, p_now timestamptz)
RETURNS messages.message
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_new   messages.message;
  v_first messages.publish_stage;
  v_last  messages.publish_stage;
BEGIN
  SELECT s.* INTO v_first FROM messages.publish_stage AS s WHERE s.ctid = p_places[1];
  v_last := v_first;
  IF cardinality(p_places) > 1 THEN
    SELECT s.* INTO v_last FROM messages.publish_stage AS s WHERE s.ctid = p_places[cardinality(p_places)];
  END IF;
  v_new.topic := v_first.topic;
  v_new.channel := v_first.channel;
  v_new.key := v_first.key;
  v_new.priority := v_first.priority;
  v_new.max_attempts := v_first.max_attempts;
  v_new.timeout := v_first.timeout;
  v_new.backoff := v_first.backoff;
  v_new.retention := v_first.retention;
  v_new.batch_id := v_first.batch_id;
  v_new.available_at := messages.staged_start(v_first.available_at, v_first.delay, p_now);
  v_new.expires_at := messages.staged_end(v_last.available_at, v_last.delay, v_last.ttl, v_last.expires_at, p_now);
  v_new.body := v_last.body;
  IF p_mode <> 'append' OR cardinality(p_places) = 1 THEN
    v_new.payload := CASE WHEN p_mode = 'append' THEN messages.jsonb_to_array(v_last.payload) ELSE v_last.payload END;
    v_new.headers := v_last.headers;
    RETURN v_new;
  END IF;
  SELECT jsonb_agg(e.value ORDER BY s.ctid, e.nth)
  INTO v_new.payload
  FROM messages.publish_stage AS s
  CROSS JOIN LATERAL jsonb_array_elements(messages.jsonb_to_array(s.payload)) WITH ORDINALITY AS e (value, nth)
  WHERE s.ctid = ANY (p_places);
  SELECT jsonb_object_agg(h.name, h.value ORDER BY s.ctid)
  INTO v_new.headers
  FROM messages.publish_stage AS s
  CROSS JOIN LATERAL jsonb_each(s.headers) AS h (name, value)
  WHERE s.ctid = ANY (p_places);
  RETURN v_new;
END
$$;
