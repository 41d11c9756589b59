-- Delete old jobs and their rejected rows: those older than the archive's default retention and than 30 days. Delete what was staged more
-- than a day ago: its job failed, or lost its tasks.
-- Called by: prune. Bounded: p_limit rows of each table. Locks: the rows that it deletes, skipping what is being published.
-- Result: how many rows.
CREATE OR REPLACE FUNCTION messages.prune_jobs(p_limit integer DEFAULT 10000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_now     timestamptz := messages.now();
  v_before  timestamptz := v_now - greatest((SELECT d.retention FROM messages.topic AS d WHERE d.topic = '*'), '30 days');
  v_attempt uuid;
  v_job     text;
  v_did     bigint;
  v_all     bigint := 0;
BEGIN
  SELECT a.attempt INTO v_attempt
  FROM messages.publish_attempt AS a WHERE a.staged_at < v_now - interval '1 day' ORDER BY a.staged_at LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF FOUND THEN
    DELETE FROM messages.publish_stage AS s
    WHERE s.ctid = ANY (ARRAY(SELECT o.ctid FROM messages.publish_stage AS o WHERE o.attempt = v_attempt LIMIT p_limit));
    GET DIAGNOSTICS v_all = ROW_COUNT;
    DELETE FROM messages.publish_attempt AS a WHERE a.attempt = v_attempt AND v_all < p_limit;
  END IF;
  PERFORM messages.truncate_stage();

  SELECT j.job INTO v_job FROM messages.publish_job AS j WHERE j.published_at < v_before AND j.rejected > 0 ORDER BY j.published_at LIMIT 1;
  IF FOUND THEN
    DELETE FROM messages.publish_rejected AS r
    WHERE r.job = v_job AND r.nth IN (SELECT o.nth FROM messages.publish_rejected AS o WHERE o.job = v_job ORDER BY o.nth LIMIT p_limit);
    GET DIAGNOSTICS v_did = ROW_COUNT;
    v_all := v_all + v_did;
    DELETE FROM messages.publish_job AS j WHERE j.job = v_job AND v_did < p_limit;
  END IF;
  DELETE FROM messages.publish_job AS j
  WHERE j.job = ANY (ARRAY(
    SELECT o.job FROM messages.publish_job AS o WHERE o.published_at < v_before AND o.rejected = 0 ORDER BY o.published_at LIMIT p_limit));
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_all + v_did;
END
$$;
