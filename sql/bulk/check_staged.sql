-- Check that everything that was staged is there and belongs to the caller.
-- Called by: publish_staged, after the rejected rows have their reasons. Errors: as there. Locks: the attempts, until
-- the transaction ends, so that none of them is pruned before it ends.
-- Result: the numbers of rows without a key, with a key, and rejected, from one pass over the rows. Rows lost in a
-- crash of the server are detected here: a crash empties the staging tables.
CREATE OR REPLACE FUNCTION messages.check_staged(
  p_job text, p_attempts uuid[], p_counts bigint[], OUT plain bigint, OUT keyed bigint, OUT rejected bigint
)
LANGUAGE plpgsql
AS $$
DECLARE
  v_owners  text[];
  v_missing bigint;
BEGIN
  SELECT array_agg(a.staged_by)
  INTO v_owners
  FROM (
    SELECT a.staged_by
    FROM messages.publish_attempt AS a
    WHERE a.attempt = ANY (p_attempts) AND a.job = p_job
    ORDER BY a.attempt
    FOR UPDATE
  ) AS a;
  IF session_user <> ANY (v_owners) THEN
    RAISE EXCEPTION 'what was staged for job "%" is another user''s', p_job
      USING ERRCODE = '42501', HINT = 'stage it as yourself';
  END IF;

  SELECT sum(abs(e.count - s.count)), coalesce(sum(s.plain), 0), coalesce(sum(s.keyed), 0), coalesce(sum(s.rejected), 0)
  INTO v_missing, plain, keyed, rejected
  FROM unnest(p_attempts, p_counts) AS e (attempt, count)
  LEFT JOIN messages.publish_attempt AS a ON a.attempt = e.attempt AND a.job = p_job
  CROSS JOIN LATERAL (
    SELECT count(*) AS count,
           count(*) FILTER (WHERE s.reason IS NULL AND s.key IS NULL) AS plain,
           count(*) FILTER (WHERE s.reason IS NULL AND s.key IS NOT NULL) AS keyed,
           count(s.reason) AS rejected
    FROM messages.publish_stage AS s
    WHERE s.attempt = a.attempt
  ) AS s;
  IF v_missing > 0 OR cardinality(p_attempts) <> coalesce(cardinality(v_owners), 0) THEN
    RAISE EXCEPTION 'of what was staged for job "%" % of % rows are missing: nothing was published',
      p_job, v_missing, (SELECT sum(c) FROM unnest(p_counts) AS c)
      USING ERRCODE = 'PGR06',
            HINT = 'the server crashed after they were staged, or they were staged more than a day ago: '
              'stage the job again, nothing is published twice';
  END IF;
END
$$;
