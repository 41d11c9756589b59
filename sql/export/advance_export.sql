-- Records that everything up to a position is written durably. Read only below
-- `pg_snapshot_xmin(pg_current_snapshot())`: rows above may still change.
--
-- Result: true; false if the export is not at the position that the caller expects, is not open, or belongs to another
-- cluster. In these cases nothing is changed.
-- Errors: 22023 for a position below which transactions that are still open may commit rows, and for a position before
-- the last one.
-- Locks: the row of the cursor.
-- Repeat: the second call returns false.
-- Called by: `pgrouse pipeline export`, once the rows are in the lake for good.
CREATE OR REPLACE FUNCTION messages.advance_export(
  p_name text, p_from_xid xid8, p_from_id bigint, p_xid xid8, p_id bigint
)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  IF p_xid >= pg_snapshot_xmin(pg_current_snapshot()) THEN
    RAISE EXCEPTION 'transactions up to % are not all over: rows below that position may still come', p_xid
      USING ERRCODE = '22023', HINT = 'read below pg_snapshot_xmin(pg_current_snapshot()) only';
  END IF;
  IF (p_xid, p_id) < (p_from_xid, p_from_id) THEN
    RAISE EXCEPTION 'an export goes forward, not from (%, %) to (%, %)', p_from_xid, p_from_id, p_xid, p_id
      USING ERRCODE = '22023';
  END IF;
  UPDATE messages.export_cursor AS c
  SET xid = p_xid, id = p_id, advanced_at = clock_timestamp()
  FROM pg_control_system() AS s
  WHERE c.name = p_name AND c.xid = p_from_xid AND c.id = p_from_id AND c.system_identifier = s.system_identifier::text;
  RETURN FOUND;
END
$$;
