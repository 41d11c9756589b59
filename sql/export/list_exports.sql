-- Returns the exports, and shows which of them the retention waits for.
--
-- Result: one row per export. `oldest_at`: when the first row that it has not read was archived; NULL = it has read
-- everything. `held_since`: when the shortest retention of any topic reached that row's day; NULL = nothing waits.
-- Errors: none.
-- Locks: none.
-- Cost: one look into the index of each day for each export.
-- Called by: `pgrouse stats`, `pgrouse health`.
CREATE OR REPLACE FUNCTION messages.list_exports()
RETURNS TABLE (name text, lake text, advanced_at timestamptz, oldest_at timestamptz, held_since timestamptz)
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT c.name, c.lake, c.advanced_at, o.archived_at, CASE WHEN d.due_at <= messages.now() THEN d.due_at END
  FROM messages.export_cursor AS c
  CROSS JOIN pg_control_system() AS s
  LEFT JOIN LATERAL (
    SELECT a.archived_at
    FROM messages.message_archive AS a
    WHERE (a.archive_xid, a.id)
      > (CASE WHEN c.system_identifier = s.system_identifier::text THEN c.xid ELSE '0' END,
         CASE WHEN c.system_identifier = s.system_identifier::text THEN c.id ELSE 0 END)
    ORDER BY a.archive_xid, a.id
    LIMIT 1
  ) AS o ON true
  CROSS JOIN LATERAL (
    SELECT (
      date_trunc('day', o.archived_at AT TIME ZONE 'UTC') + interval '1 day' + min(t.retention)
    ) AT TIME ZONE 'UTC' AS due_at
    FROM messages.topic AS t
  ) AS d
  ORDER BY c.name
$$;
