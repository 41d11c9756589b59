-- Starts holding the archive from a position on. If an export of this name is already open, it does not change.
--
-- Result: the current cursor.
-- Errors: 22023 for an invalid name.
-- Locks: the row of the cursor, if it is new.
-- Repeat: safe.
-- Called by: `pgrouse pipeline export`.
CREATE OR REPLACE FUNCTION messages.open_export(
  p_name text, p_lake text, p_lake_id text, p_xid xid8 DEFAULT '0', p_id bigint DEFAULT 0,
  OUT lake text, OUT lake_id text, OUT system_identifier text, OUT xid xid8, OUT id bigint, OUT advanced_at timestamptz
)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  IF p_name IS NULL OR p_name !~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$' THEN
    RAISE EXCEPTION 'the name of an export is "%"', coalesce(p_name, 'NULL')
      USING ERRCODE = '22023', HINT = 'use letters, digits, and . _ : - after the first; at most 200';
  END IF;
  INSERT INTO messages.export_cursor AS c (name, lake, lake_id, system_identifier, xid, id)
  SELECT p_name, p_lake, p_lake_id, s.system_identifier::text, p_xid, p_id
  FROM pg_control_system() AS s
  ON CONFLICT ON CONSTRAINT export_cursor_pkey DO NOTHING;
  SELECT c.lake, c.lake_id, c.system_identifier, c.xid, c.id, c.advanced_at
  INTO lake, lake_id, system_identifier, xid, id, advanced_at
  FROM messages.export_cursor AS c
  WHERE c.name = p_name;
END
$$;
