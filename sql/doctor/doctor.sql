-- Checks for everything that can go wrong silently, as far as SQL can see it, by calling the functions below one after
-- another. It returns what is wrong, and the statement or setting that fixes it. [The doctor](doctor.md) explains each
-- code; `pgrouse doctor` adds checks that only a client can make. You may call it in a read-only transaction. It uses
-- the caller's rights where the server shows more to some roles than to others, otherwise the owner's.
--
-- Result: at least one row for each code. `level` is `ok`, `warn` (it has a cost, or will fail) or `fail` (work is not
-- done, or a guarantee does not hold); `fix` is NULL where nothing has to be done. If a function fails, the result has
-- a row with the code `unexamined` and the reason.
-- Errors: none.
-- Locks: none.
-- Called by: people, programs of any language; `pgrouse doctor` calls the parts one by one.
CREATE OR REPLACE FUNCTION messages.doctor()
RETURNS TABLE (code text, level text, what text, fix text)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_part text;
BEGIN
  FOREACH v_part IN ARRAY ARRAY[
    'server', 'connections', 'settings', 'holders', 'snapshots', 'tables', 'schema', 'archive', 'ticks', 'workers',
    'topics', 'conditions']
  LOOP
    BEGIN
      CASE v_part
        WHEN 'server'      THEN RETURN QUERY SELECT e.* FROM messages.examine_server() AS e;
        WHEN 'connections' THEN RETURN QUERY SELECT e.* FROM messages.examine_connections() AS e;
        WHEN 'settings'    THEN RETURN QUERY SELECT e.* FROM messages.examine_settings() AS e;
        WHEN 'holders'     THEN RETURN QUERY SELECT e.* FROM messages.examine_holders() AS e;
        WHEN 'snapshots'   THEN RETURN QUERY SELECT e.* FROM messages.examine_snapshots() AS e;
        WHEN 'tables'      THEN RETURN QUERY SELECT e.* FROM messages.examine_tables() AS e;
        WHEN 'schema'      THEN RETURN QUERY SELECT e.* FROM messages.examine_schema() AS e;
        WHEN 'archive'     THEN RETURN QUERY SELECT e.* FROM messages.examine_archive() AS e;
        WHEN 'ticks'       THEN RETURN QUERY SELECT e.* FROM messages.examine_ticks() AS e;
        WHEN 'workers'     THEN RETURN QUERY SELECT e.* FROM messages.examine_workers() AS e;
        WHEN 'topics'      THEN RETURN QUERY SELECT e.* FROM messages.examine_topics() AS e;
        WHEN 'conditions'  THEN RETURN QUERY SELECT e.* FROM messages.examine_conditions() AS e;
      END CASE;
    EXCEPTION WHEN OTHERS THEN
      code := 'unexamined';
      level := 'warn';
      what := format('%s: %s', v_part, SQLERRM);
      fix := CASE SQLSTATE WHEN '42501' THEN format('GRANT messages_operator TO %I;', current_user)
        WHEN '55P03' THEN 'another session holds a lock on it: see table_lock, and try again' END;
      RETURN NEXT;
    END;
  END LOOP;
END
$$;
