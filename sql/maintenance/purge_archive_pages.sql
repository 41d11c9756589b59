-- Delete rows of some pages of one partition of the archive.
-- Called by: purge, purge_archive. Locks: the rows it deletes, also those of side tables. Result: how many.
-- Rows that an export has not read yet stay, whatever is asked for.
-- p_topic: of this topic; '*' or a pattern = of the topics whose retention its row sets; NULL = of all. p_before: only
-- rows that ended earlier. p_spares_own: not those that have a retention of their own.
CREATE OR REPLACE FUNCTION messages.purge_archive_pages(
  p_partition text, p_from bigint, p_to bigint, p_topic text, p_before timestamptz,
  p_spares_own boolean DEFAULT false
)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_bound record;
  v_from  bigint;
  v_ids   bigint[];
  v_did   bigint := 0;
BEGIN
  SELECT b.xid, b.id INTO v_bound FROM messages.exported_position() AS b;
  -- An array has the ids of 1,000 pages, however many are asked for.
  FOR v_from IN SELECT generate_series(p_from, p_to - 1, 1000) LOOP
    EXECUTE format(
      $delete$
        WITH gone AS (
          DELETE FROM messages.%I AS a
          WHERE a.ctid >= $1 AND a.ctid < $2 AND a.archived_at < $3
            AND ($7 IS FALSE OR a.retention IS NULL)
            AND ($5 IS NULL OR (a.archive_xid, a.id) <= ($5, $6))
            AND ($4 IS NULL OR a.topic = $4 COLLATE "C"
              OR (right($4, 1) = '*' AND messages.retention_setter(a.topic) = $4))
          RETURNING a.id)
        SELECT array_agg(g.id) FROM gone AS g
      $delete$, p_partition)
    INTO v_ids
    USING format('(%s,0)', v_from)::tid, format('(%s,0)', least(v_from + 1000, p_to))::tid, p_before, p_topic,
      v_bound.xid, v_bound.id, p_spares_own;
    IF v_ids IS NOT NULL THEN
      PERFORM messages.delete_orphans(v_ids);
      v_did := v_did + cardinality(v_ids);
    END IF;
  END LOOP;
  RETURN v_did;
END
$$;
