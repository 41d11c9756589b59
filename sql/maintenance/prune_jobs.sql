-- Delete old jobs and their rejected rows: those older than the archive's default retention and than 30 days. Delete
-- what was staged more than a day ago: its job failed, or lost its tasks. Delete rows whose attempt is gone: it was
-- deleted while they were being staged.
-- Called by: prune. Bounded: p_limit rows of each table. Locks: the rows that it deletes, skipping what is being
-- published.
-- Result: how many rows.
CREATE OR REPLACE FUNCTION messages.prune_jobs(p_limit integer DEFAULT 10000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_before timestamptz := v_now - greatest(
    (SELECT d.retention FROM messages.topic AS d WHERE d.topic = '*'), '30 days');
  v_old    text[] := ARRAY(
    SELECT j.job FROM messages.publish_job AS j WHERE j.published_at < v_before ORDER BY j.published_at LIMIT p_limit);
  v_did    bigint;
  v_all    bigint;
BEGIN
  v_all := messages.prune_stage(v_now - interval '1 day', p_limit);

  DELETE FROM messages.publish_rejected AS r
  WHERE r.ctid = ANY (ARRAY(
    SELECT o.ctid
    FROM unnest(v_old) AS j (job)
    CROSS JOIN LATERAL (
      SELECT i.ctid FROM messages.publish_rejected AS i WHERE i.job = j.job ORDER BY i.nth LIMIT p_limit
    ) AS o
    LIMIT p_limit));
  GET DIAGNOSTICS v_did = ROW_COUNT;
  v_all := v_all + v_did;
  DELETE FROM messages.publish_job AS j
  WHERE j.job = ANY (v_old) AND NOT EXISTS (SELECT FROM messages.publish_rejected AS r WHERE r.job = j.job);
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_all + v_did;
END
$$;

-- Delete what was staged under numbers that are older than p_before, or gone; then these numbers.
-- Called by: prune_jobs. Bounded: p_limit rows, and as many numbers. Locks: the numbers, except those that are being
-- published, and the rows.
-- Result: how many rows.
CREATE OR REPLACE FUNCTION messages.prune_stage(p_before timestamptz, p_limit integer)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_old  uuid[];
  v_gone uuid[];
  v_did  bigint;
BEGIN
  SELECT array_agg(a.attempt)
  INTO v_old
  FROM (
    SELECT a.attempt FROM messages.publish_attempt AS a
    WHERE a.staged_at < p_before ORDER BY a.staged_at LIMIT p_limit FOR UPDATE SKIP LOCKED
  ) AS a;
  -- From one number to the next larger one: an index entry for each, however many rows it has. One statement: who sees
  -- a row sees its number.
  WITH RECURSIVE staged AS (
    SELECT (SELECT s.attempt FROM messages.publish_stage AS s ORDER BY s.attempt LIMIT 1) AS attempt
    UNION ALL
    SELECT (SELECT s.attempt FROM messages.publish_stage AS s WHERE s.attempt > t.attempt ORDER BY s.attempt LIMIT 1)
    FROM staged AS t
    WHERE t.attempt IS NOT NULL
  )
  SELECT array_agg(t.attempt)
  INTO v_gone
  FROM staged AS t
  WHERE t.attempt IS NOT NULL AND NOT EXISTS (SELECT FROM messages.publish_attempt AS a WHERE a.attempt = t.attempt);
  DELETE FROM messages.publish_stage AS s
  WHERE s.ctid = ANY (ARRAY(
    SELECT o.ctid
    FROM unnest(v_old || v_gone) AS t (attempt)
    CROSS JOIN LATERAL (SELECT i.ctid FROM messages.publish_stage AS i WHERE i.attempt = t.attempt LIMIT p_limit) AS o
    LIMIT p_limit));
  GET DIAGNOSTICS v_did = ROW_COUNT;
  DELETE FROM messages.publish_attempt AS a
  WHERE a.attempt = ANY (v_old) AND NOT EXISTS (SELECT FROM messages.publish_stage AS s WHERE s.attempt = a.attempt);
  PERFORM messages.truncate_stage();
  RETURN v_did;
END
$$;
