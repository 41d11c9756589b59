-- Delete archived messages whose own retention is over, those that are due longest first. Rows that an export has not
-- read yet stay.
-- Called by: purge. Bounded: p_limit rows. Locks: the rows it deletes. Result: how many.
-- The index message_archive_own_end has no other rows, so it costs next to nothing while no message has a retention of
-- its own. Each row is looked up in the partition of its day.
CREATE OR REPLACE FUNCTION messages.purge_own(p_limit integer DEFAULT 10000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_now   timestamp := messages.now() AT TIME ZONE 'UTC';
  v_bound record;
  v_ids   bigint[];
  v_times timestamptz[];
BEGIN
  SELECT b.xid, b.id INTO v_bound FROM messages.exported_position() AS b;
  SELECT array_agg(d.id), array_agg(d.archived_at)
  INTO v_ids, v_times
  FROM (
    SELECT a.id, a.archived_at
    FROM messages.message_archive AS a
    WHERE a.retention IS NOT NULL AND (a.archived_at AT TIME ZONE 'UTC') + a.retention <= v_now
      AND (v_bound.xid IS NULL OR (a.archive_xid, a.id) <= (v_bound.xid, v_bound.id))
    ORDER BY (a.archived_at AT TIME ZONE 'UTC') + a.retention
    LIMIT p_limit
  ) AS d;
  IF v_ids IS NULL THEN
    RETURN 0;
  END IF;
  WITH gone AS (
    DELETE FROM messages.message_archive AS a
    USING unnest(v_ids, v_times) AS e (id, archived_at)
    WHERE a.id = ANY (ARRAY[e.id]) AND a.archived_at = e.archived_at
    RETURNING a.id
  )
  SELECT array_agg(g.id) INTO v_ids FROM gone AS g;
  PERFORM messages.delete_orphans(v_ids);
  RETURN coalesce(cardinality(v_ids), 0);
END
$$;
