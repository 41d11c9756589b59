-- List the partitions of the archive: names, days (UTC; NULL for the default partition), sizes in pages, and whether
-- the caller may change them: not those that another role made by hand and still owns.
-- Called by: maintain_partitions, purge, purge_archive, examine_archive. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.archive_days()
RETURNS TABLE (name text, day date, pages bigint, is_ours boolean)
LANGUAGE sql
STABLE
AS $$
  SELECT c.relname::text,
         CASE WHEN c.relname ~ '^message_archive_[0-9]{8}$' THEN to_date(right(c.relname, 8), 'YYYYMMDD') END,
         pg_relation_size(c.oid) / current_setting('block_size')::bigint,
         pg_has_role(c.relowner, 'USAGE')
  FROM pg_inherits AS i
  JOIN pg_class AS c ON c.oid = i.inhrelid
  WHERE i.inhparent = 'messages.message_archive'::regclass
$$;
