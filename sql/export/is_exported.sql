-- Returns whether every export has read all rows of a partition of the archive; true if there is no export.
-- Called by: maintain_partitions, purge. Locks: nothing. Volatile, so that it sees what was committed after the
-- caller's statement began.
CREATE OR REPLACE FUNCTION messages.is_exported(p_partition text)
RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
  v_bound  record;
  v_beyond boolean;
BEGIN
  SELECT b.xid, b.id INTO v_bound FROM messages.exported_position() AS b;
  IF v_bound.xid IS NULL THEN
    RETURN true;
  END IF;
  EXECUTE format('SELECT EXISTS (SELECT FROM messages.%I AS a WHERE (a.archive_xid, a.id) > ($1, $2))', p_partition)
  INTO v_beyond
  USING v_bound.xid, v_bound.id;
  RETURN NOT v_beyond;
END
$$;
