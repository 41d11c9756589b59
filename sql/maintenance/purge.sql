-- Deletes what is older than its retention and cannot be removed by dropping a whole day: the rows of topics whose
-- `retention` is shorter than the longest of all, once their whole day (UTC) is too old; rows in the default partition;
-- messages whose own `retention` is over, to the second and at most 10,000 in a call, the others of which it spares;
-- alerts that were delivered a week ago, or were not delivered for the `retention` of `*`; the records of redrives and
-- dead letters that are no longer in the archive; measures of more than 7 days, and rows of `messages.audit` of more
-- than a year. It also merges the rows of `messages.dead_count`.
--
-- Arguments: `p_pages`: the maximum number of archive pages of 8 kB that it reads; the next call continues from there.
-- Result: how many rows.
-- Errors: 22023 for an invalid number of pages.
-- Locks: the rows it deletes.
-- Called by: tick.
-- Inside: A day is checked once all of it is too old for a topic, and read by every export; the mark '*' is for topics
-- without a retention of their own.
CREATE OR REPLACE FUNCTION messages.purge(p_pages integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now  timestamptz := messages.now();
  v_keep interval := (SELECT max(t.retention) FROM messages.topic AS t);
  v_left bigint := p_pages;
  v_did  bigint := messages.purge_own() + messages.prune_alerts() + messages.prune_redrives()
    + messages.prune_measures()
    + messages.prune_audit();
  v_due  record;
  v_to   bigint;
BEGIN
  IF p_pages IS NULL OR p_pages NOT BETWEEN 1 AND 1000000 THEN
    RAISE EXCEPTION 'pages of a purge are %', coalesce(p_pages::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 to 1000000';
  END IF;
  PERFORM messages.merge_dead_counts();
  FOR v_due IN
    SELECT d.name, d.day IS NULL AS is_default, t.topic, v_now - t.retention AS before, d.pages,
           coalesce((k.at::text::point)[0]::bigint, 0) AS place
    FROM messages.archive_days() AS d
    CROSS JOIN messages.topic AS t
    LEFT JOIN messages.purge_mark AS k ON k.partition = d.name AND k.topic = t.topic
    WHERE t.retention IS NOT NULL AND k.done IS NOT TRUE AND d.pages > 0 AND d.is_ours
      AND (d.day IS NULL OR (t.retention < v_keep AND d.day + 1 <= ((v_now - t.retention) AT TIME ZONE 'UTC')::date))
    ORDER BY d.name, t.topic
  LOOP
    EXIT WHEN v_left <= 0;
    -- A day is read once: it is not begun while rows of it must stay. In the default partition such rows are skipped.
    CONTINUE WHEN NOT v_due.is_default AND NOT messages.is_exported(v_due.name);
    v_to := v_due.place + v_left;
    v_did := v_did + messages.purge_archive_pages(v_due.name, v_due.place, v_to, v_due.topic, v_due.before, true);
    v_left := v_left - greatest(least(v_to, v_due.pages) - v_due.place, 1);
    INSERT INTO messages.purge_mark AS k (partition, topic, at, done)
    VALUES (
      v_due.name, v_due.topic, format('(%s,0)', CASE WHEN v_to < v_due.pages THEN v_to ELSE 0 END)::tid,
      -- The default partition is begun again: what is there grows old row by row.
      v_to >= v_due.pages AND NOT v_due.is_default)
    ON CONFLICT ON CONSTRAINT purge_mark_pkey DO UPDATE SET at = excluded.at, done = excluded.done;
  END LOOP;
  RETURN v_did;
END
$$;
