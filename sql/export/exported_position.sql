-- The position that every export has passed: rows above it, by (archive_xid, id), must stay in the archive.
-- Called by: is_exported, purge_archive_pages. Locks: nothing. Result: NULL, NULL = there is no export; (0, 0) = a
-- cursor comes from another cluster, whose transaction ids mean nothing here, so nothing is known to be exported.
CREATE OR REPLACE FUNCTION messages.exported_position(OUT xid xid8, OUT id bigint)
LANGUAGE sql
STABLE
AS $$
  SELECT CASE WHEN c.here THEN c.xid ELSE '0' END, CASE WHEN c.here THEN c.id ELSE 0 END
  FROM (
    SELECT e.xid, e.id, e.system_identifier = s.system_identifier::text AS here
    FROM messages.export_cursor AS e
    CROSS JOIN pg_control_system() AS s
  ) AS c
  ORDER BY c.here, c.xid, c.id
  LIMIT 1
$$;
