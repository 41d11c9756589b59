-- Checks how many connections are left: of the server, the database or the role, whichever has the fewest. It uses the
-- caller's rights: a caller that may not see the sessions of others counts each that has a database as a client.
--
-- Result: one row, of the code `connections`.
-- Errors: none.
-- Locks: none.
-- Called by: doctor, `pgrouse doctor`.
CREATE OR REPLACE FUNCTION messages.examine_connections()
RETURNS TABLE (code text, level text, what text, fix text)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_used  bigint;
  v_limit bigint;
  v_of    text;
  v_whose text;
BEGIN
  SELECT c.used, c.most, c.which, c.whose INTO v_used, v_limit, v_of, v_whose
  FROM (
    SELECT (
      SELECT count(*) FROM pg_stat_activity AS a
      WHERE coalesce(a.backend_type, 'client backend') = 'client backend' AND a.datname IS NOT NULL),
           current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
             - coalesce(current_setting('reserved_connections', true), '0')::bigint,
           'the server', NULL
    UNION ALL
    SELECT (
      SELECT count(*) FROM pg_stat_activity AS a
      WHERE a.datname = d.datname AND coalesce(a.backend_type, 'client backend') = 'client backend'),
           d.datconnlimit, format('the database %s', d.datname), format('DATABASE %I', d.datname)
    FROM pg_database AS d
    WHERE d.datname = current_database() AND d.datconnlimit >= 0
    UNION ALL
    SELECT count(*), r.rolconnlimit, format('the role %s', r.rolname), format('ROLE %I', r.rolname)
    FROM pg_roles AS r
    JOIN pg_stat_activity AS a ON a.usename = r.rolname
    WHERE r.rolconnlimit >= 0 AND NOT r.rolsuper
    GROUP BY r.rolname, r.rolconnlimit
  ) AS c (used, most, which, whose)
  ORDER BY c.used::double precision / greatest(c.most, 1) DESC
  LIMIT 1;
  code := 'connections';
  level := CASE WHEN v_used >= v_limit THEN 'fail' WHEN v_used >= 0.8 * v_limit THEN 'warn' ELSE 'ok' END;
  what := format('%s of the %s connections that %s allows are used', v_used, v_limit, v_of);
  fix := CASE
    WHEN level = 'ok' THEN NULL
    WHEN v_whose IS NOT NULL THEN format('ALTER %s CONNECTION LIMIT -1;', v_whose)
    ELSE 'end idle sessions, lower worker.claim_connections or database.pool_size, '
      'or raise max_connections and restart the server' END;
  RETURN NEXT;
END
$$;
