-- Checks the parts of the schema that guard the messages: enabled triggers, valid indexes, no accidental rights of
-- PUBLIC.
--
-- Result: for each code what is wrong with it, by object, or one row with level `ok`. The codes are `triggers`,
-- `indexes`, `public_rights`.
-- Errors: none.
-- Locks: none.
-- Cost: the catalog.
-- Called by: doctor, `pgrouse doctor`, which also compares with the files of its version.
CREATE OR REPLACE FUNCTION messages.examine_schema()
RETURNS TABLE (code text, level text, what text, fix text)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN QUERY
  WITH found (code, level, what, fix) AS (
    -- 'O' fires, 'A' fires in sessions with session_replication_role = replica too; 'R' fires only there.
    SELECT 'triggers', 'fail', format('the trigger %s of messages.%s %s', t.tgname, c.relname,
             CASE t.tgenabled WHEN 'D' THEN 'is switched off' ELSE 'fires in replicas only' END),
           format('ALTER TABLE messages.%I ENABLE TRIGGER %I;', c.relname, t.tgname)
    FROM pg_trigger AS t
    JOIN pg_class AS c ON c.oid = t.tgrelid AND c.relnamespace = 'messages'::regnamespace
    WHERE t.tgenabled IN ('D', 'R') AND NOT t.tgisinternal
    UNION ALL
    SELECT 'indexes', CASE WHEN i.indisunique THEN 'fail' ELSE 'warn' END,
           format('the index messages.%s is not valid%s', c.relname,
             CASE WHEN c.relname ~ '_cc(new|old)[0-9]*$' THEN ': it is left over from a failed REINDEX CONCURRENTLY'
               ELSE ' and no query uses it' END),
           format(
             CASE WHEN c.relname ~ '_cc(new|old)[0-9]*$' THEN 'DROP INDEX CONCURRENTLY messages.%I;'
               ELSE 'REINDEX INDEX CONCURRENTLY messages.%I;' END, c.relname)
    FROM pg_index AS i
    JOIN pg_class AS c ON c.oid = i.indexrelid AND c.relnamespace = 'messages'::regnamespace
    WHERE NOT (i.indisvalid AND i.indisready AND i.indislive)
    UNION ALL
    SELECT 'public_rights', 'fail',
           format('PUBLIC may %s %s', lower(string_agg(g.privilege, ', ') COLLATE "C"), g.object),
           'run `pgrouse migrate`, which takes it away'
    FROM (
      SELECT a.privilege_type, format('messages.%s', c.relname)
      FROM pg_class AS c, aclexplode(c.relacl) AS a
      WHERE c.relnamespace = 'messages'::regnamespace AND a.grantee = 0
      UNION ALL
      SELECT a.privilege_type, p.oid::regprocedure::text
      FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
      WHERE p.pronamespace = 'messages'::regnamespace AND a.grantee = 0
      UNION ALL
      SELECT a.privilege_type, 'the schema messages'
      FROM pg_namespace AS n, aclexplode(n.nspacl) AS a
      WHERE n.nspname = 'messages' AND a.grantee = 0
    ) AS g (privilege, object)
    GROUP BY g.object
  )
  (SELECT f.* FROM found AS f LIMIT 50)
  UNION ALL
  SELECT c.code, 'ok', c.said, NULL
  FROM (VALUES
    ('triggers', 'all are switched on'),
    ('indexes', 'all are valid'),
    ('public_rights', 'PUBLIC may do nothing')) AS c (code, said)
  WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.code = c.code);
END
$$;
