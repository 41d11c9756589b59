-- Move the cursor of an export forward after everything up to a position was written. A caller that is wrong about the current position
-- changes nothing, so the second of two exporters with one name notices the first.
-- Called by: pgrouse pipeline export, once the rows are in the lake for good. Locks: the cursor's row.
-- Result: whether the cursor was at the expected position, in this cluster. A position that running transactions could still write below is
-- refused.
CREATE OR REPLACE FUNCTION messages.advance_export(p_name text, p_from_xid xid8, p_from_id bigint, p_xid xid8, p_id bigint)
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
    RAISE EXCEPTION 'an export goes forward, not from (%, %) to (%, %)', p_from_xid, p_from_id, p_xid, p_id USING ERRCODE = '22023';
  END IF;
  UPDATE messages.export_cursor AS c
  SET xid = p_xid, id = p_id, advanced_at = clock_timestamp()
  FROM pg_control_system() AS s
  WHERE c.name = p_name AND c.xid = p_from_xid AND c.id = p_from_id AND c.system_identifier = s.system_identifier::text;
  RETURN FOUND;
END
$$;
