-- Publishes everything that was staged for a job, in the caller's transaction. `p_counts` contains the number of rows
-- staged under each of `p_attempts`; rows staged for the job under other numbers are deleted. The policies of the
-- topics apply.
--
-- Some rows are rejected, each with its reason, and the others are published anyway. A row is rejected if it was staged
-- with a `reason`, if its topic does not accept publishes, if it is larger than `max_payload_bytes`, if a waiting
-- message has its key or a message holds it (`on_conflict` error), or if it cannot be appended.
--
-- If several rows have the same key, those with `on_conflict` error and ignore come first: the first of them is
-- published. Those with replace and append come after them, as one message: it has the channel, the priority,
-- `available_at`, `max_attempts`, `timeout`, `backoff` and `retention` of the first of them, the content of the last
-- one with replace, what is appended after that one, and the expiry of the last. Rows with replace and append are
-- published key by key, and so are rows with keys in topics that have a `key_ttl`, subscribers, or both `max_depth` and
-- `on_full = 'drop'`; all others go in one statement. The time grows with the number of rows, with every `on_conflict`.
--
-- Result: how many rows were `published`, `ignored` (a waiting message has their key, or a message holds it), `dropped`
-- (their topic is full and drops), `rejected`; `is_repeat`: the job was published before, and these are the counts from
-- that time.
-- Errors: PGR01, PGR02, PGR09: a topic is full, its `publish_rate` is used up, or a batch (`batch_id`) accepts no
-- messages: the whole job is refused. PGR06: rows are
-- missing: the server crashed in the meantime (the stage is not in the WAL), or a day has passed; stage the job again.
-- PGR07: more rows than `p_max_rejected` are rejected. 42501: the job, or what was staged, belongs to another user.
-- 22023: lists of different lengths, or an invalid key. Nothing is published then, and the staged rows are kept.
-- Locks: the job: a second call waits for the first, and then returns the outcome of the first. Whatever an INSERT of
-- the messages locks: first the keys of the one statement, then those that are published key by key, each in the order
-- of topics and keys. The stage, until the transaction ends, if it is large and no other session uses it. Use READ
-- COMMITTED.
-- Repeat: safe. A job is remembered for as long as the archive keeps messages by default, and for at least 30 days.
-- Called by: publishers, when all tasks have staged.
CREATE OR REPLACE FUNCTION messages.publish_staged(
  p_job text, p_attempts uuid[], p_counts bigint[], p_max_rejected bigint DEFAULT NULL,
  OUT published bigint, OUT ignored bigint, OUT dropped bigint, OUT rejected bigint, OUT published_at timestamptz,
  OUT is_repeat boolean
)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_job     messages.publish_job := messages.read_own_job(p_job);
  v_now     messages.moment;
  v_has     record;
  v_keyed   record;
BEGIN
  IF p_attempts IS NULL OR p_counts IS NULL OR cardinality(p_attempts) <> cardinality(p_counts) THEN
    RAISE EXCEPTION 'publish_staged: % attempts and % counts', cardinality(p_attempts), cardinality(p_counts)
      USING ERRCODE = '22023', HINT = 'give one count for each attempt';
  END IF;
  INSERT INTO messages.publish_job (job) VALUES (p_job) ON CONFLICT DO NOTHING;
  is_repeat := NOT FOUND;
  IF is_repeat THEN
    v_job := messages.read_own_job(p_job);
    SELECT v_job.published, v_job.ignored, v_job.dropped, v_job.rejected, v_job.published_at
    INTO published, ignored, dropped, rejected, published_at;
    PERFORM messages.delete_staged(p_attempts);
    RETURN;
  END IF;

  PERFORM messages.reject_staged(p_attempts);
  v_has := messages.check_staged(p_job, p_attempts, p_counts);

  -- The clock is read after the transaction has its number: a message must not seem older than its transaction, or
  -- claims look for it too late.
  v_now := clock_timestamp();
  INSERT INTO messages.message (
    topic, channel, priority, payload, body, headers, created_at, available_at, expires_at, max_attempts,
    timeout, backoff, retention, batch_id)
  SELECT s.topic, s.channel, s.priority, s.payload, s.body, s.headers, v_now,
         messages.staged_start(s.available_at, s.delay, v_now),
         messages.staged_end(s.available_at, s.delay, s.ttl, s.expires_at, v_now),
         s.max_attempts, s.timeout, s.backoff, s.retention, s.batch_id
  FROM messages.publish_stage AS s
  WHERE s.attempt = ANY (p_attempts) AND s.reason IS NULL AND s.key IS NULL;
  GET DIAGNOSTICS published = ROW_COUNT;
  dropped := v_has.plain - published;
  ignored := 0;
  IF v_has.keyed > 0 THEN
    v_keyed := messages.publish_staged_with_key(p_attempts);
    published := published + v_keyed.published;
    ignored := v_keyed.ignored;
    dropped := dropped + v_keyed.dropped;
  END IF;

  -- Keys that stand were found by publish_staged_with_key just now.
  rejected := CASE WHEN v_has.keyed + v_has.rejected > 0 THEN messages.store_rejected(p_job, p_attempts) ELSE 0 END;
  IF rejected > p_max_rejected THEN
    RAISE EXCEPTION 'job "%" has % rows that cannot be published, and % would be let pass', p_job, rejected,
      p_max_rejected
      USING ERRCODE = 'PGR07', HINT = 'the first: ' || (
        SELECT left(r.reason, 500) FROM messages.publish_rejected AS r WHERE r.job = p_job AND r.nth = 1);
  END IF;
  UPDATE messages.publish_job AS j
  SET published = publish_staged.published, ignored = publish_staged.ignored, dropped = publish_staged.dropped,
      rejected = publish_staged.rejected, published_at = clock_timestamp()
  WHERE j.job = p_job
  RETURNING j.published_at INTO published_at;
  PERFORM messages.delete_staged(
    p_attempts || ARRAY(SELECT a.attempt FROM messages.publish_attempt AS a WHERE a.job = p_job));
END
$$;

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
           'body', encode(s.body, 'base64'), 'headers', s.headers::text, 'delay', s.delay, 'available_at',
           s.available_at,
           'ttl', s.ttl, 'expires_at', s.expires_at, 'max_attempts', s.max_attempts, 'timeout', s.timeout,
           'backoff', s.backoff, 'retention', s.retention, 'batch_id', s.batch_id,
           'on_conflict', s.on_conflict)))
  FROM messages.publish_stage AS s
  WHERE s.attempt = ANY (p_attempts) AND s.reason IS NOT NULL;
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_did;
END
$$;

-- Mark the staged rows that the policies of their topics reject: topics that accept no publishes, and rows that are too
-- large.
-- Called by: publish_staged, before it inserts; what full topics and rates refuse is refused to the whole job.
-- The policies of all topics are one value, and each row looks its own up in it: a join without statistics may compare
-- each row with each topic.
-- Locks: the rows that it marks. Nothing is read while no topic of the database uses such a policy.
CREATE OR REPLACE FUNCTION messages.reject_staged(p_attempts uuid[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  -- By topic: how many bytes fit; null = it accepts no publishes.
  v_limits jsonb;
BEGIN
  IF NOT messages.has_policies() THEN
    RETURN;
  END IF;
  SELECT jsonb_object_agg(d.topic, CASE WHEN a.accept_publishes THEN a.max_payload_bytes END)
  INTO v_limits
  FROM (
    SELECT DISTINCT s.topic FROM messages.publish_stage AS s WHERE s.attempt = ANY (p_attempts) AND s.reason IS NULL
  ) AS d
  CROSS JOIN LATERAL messages.publish_policy(d.topic) AS a
  WHERE NOT a.accept_publishes OR a.max_payload_bytes IS NOT NULL;
  UPDATE messages.publish_stage AS s
  SET reason = CASE
    WHEN v_limits ->> s.topic IS NULL THEN format('topic %s does not accept publishes', s.topic)
    ELSE format('it has %s bytes, max_payload_bytes of topic %s is %s',
                coalesce(octet_length(s.payload::text), octet_length(s.body)), s.topic, v_limits ->> s.topic)
  END
  WHERE s.attempt = ANY (p_attempts) AND s.reason IS NULL AND v_limits ? s.topic
    AND coalesce(coalesce(octet_length(s.payload::text), octet_length(s.body)) > (v_limits ->> s.topic)::integer, true);
END
$$;
