-- Checks that the archive has its daily partitions and may drop them, what the retention must keep, and that no row has
-- a transaction id from the future.
--
-- Result: for each code what is wrong with it, by object, or one row with level `ok`. The codes are `partitions`,
-- `default_partition`, `future_xids`, `exports`.
-- Errors: none.
-- Locks: none.
-- Cost: the catalog, one row of the default partition, for each export one look into the index of each day, and one
-- more.
-- Called by: doctor, `pgrouse doctor`.
CREATE OR REPLACE FUNCTION messages.examine_archive()
RETURNS TABLE (code text, level text, what text, fix text)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_today   date := (messages.now() AT TIME ZONE 'UTC')::date;
  v_missing date;
  v_pages   bigint;
  -- Whatever is visible was written by a transaction below the one, or by the other.
  v_last    xid8 := greatest(pg_snapshot_xmax(pg_current_snapshot()), pg_current_xact_id_if_assigned());
  v_future  text[];
  v_row     record;
BEGIN
  SELECT v_today + n INTO v_missing
  FROM generate_series(0, 2) AS n
  WHERE NOT EXISTS (SELECT FROM messages.archive_days() AS d WHERE d.day = v_today + n)
  ORDER BY n LIMIT 1;
  code := 'partitions';
  level := CASE WHEN v_missing IS NULL THEN 'ok' WHEN v_missing = v_today THEN 'fail' ELSE 'warn' END;
  what := CASE level
    WHEN 'ok' THEN 'the next three days are there'
    WHEN 'warn'
      THEN format('the archive has no partition for %s: the maintenance does not run, or cannot create it', v_missing)
    ELSE format('the archive has no partition for %s: what ends today goes into the default partition', v_missing) END;
  fix := CASE WHEN level <> 'ok' THEN 'SELECT messages.maintain_partitions();' END;
  RETURN NEXT;
  FOR v_row IN
    SELECT d.name, c.relowner::regrole AS owner
    FROM messages.archive_days() AS d
    JOIN pg_class AS c ON c.oid = format('messages.%I', d.name)::regclass
    WHERE NOT d.is_ours
    ORDER BY d.name
  LOOP
    level := 'warn';
    what := format('the partition %s belongs to %s: the maintenance cannot delete its rows', v_row.name, v_row.owner);
    fix := format('ALTER TABLE messages.%I OWNER TO %I;', v_row.name, current_user);
    RETURN NEXT;
  END LOOP;

  SELECT d.pages INTO v_pages FROM messages.archive_days() AS d WHERE d.day IS NULL;
  code := 'default_partition';
  IF v_pages IS NULL THEN
    level := 'fail';
    what := 'the archive has no default partition: a message whose day is missing cannot end';
    fix := format('CREATE TABLE messages.message_archive_default PARTITION OF messages.message_archive DEFAULT; '
      'ALTER TABLE messages.message_archive_default OWNER TO %s;',
      (SELECT c.relowner::regrole FROM pg_class AS c WHERE c.oid = 'messages.message_archive'::regclass));
  ELSIF EXISTS (SELECT FROM messages.message_archive_default AS a WHERE a.retention IS NULL) THEN
    level := 'warn';
    what := format(
      'there are rows in the default partition (%s pages), where they are found and deleted slower', v_pages);
    fix := 'SELECT messages.maintain_partitions(); moves those of today, purge deletes the others in their time';
  ELSE
    level := 'ok';
    what := 'is empty';
    fix := NULL;
  END IF;
  RETURN NEXT;

  code := 'future_xids';
  v_future := ARRAY(
    SELECT f.fix
    FROM (VALUES
      (EXISTS (SELECT FROM messages.message_archive AS a WHERE a.archive_xid > v_last),
       'UPDATE messages.message_archive SET archive_xid = pg_current_xact_id() '
       'WHERE archive_xid > pg_current_xact_id();'),
      (EXISTS (SELECT FROM messages.alert AS a WHERE a.xid > v_last),
       'UPDATE messages.alert SET xid = pg_current_xact_id() WHERE xid > pg_current_xact_id();'),
      (EXISTS (SELECT FROM messages.low_water_mark AS m WHERE m.xid > v_last),
       'UPDATE messages.low_water_mark SET safe_at = ''epoch'', at = ''epoch'', xid = ''0'', next_run_at = ''epoch'';')
    ) AS f (is_so, fix)
    WHERE f.is_so);
  level := CASE WHEN v_future = '{}' THEN 'ok' ELSE 'fail' END;
  what := CASE level
    WHEN 'ok' THEN 'all transactions are of this cluster'
    ELSE 'rows name transactions that this cluster has not begun: it was restored from a dump of one that had counted '
      'further. Streams, exports and '
      || 'alerts do not come to them, or count them as new again and again' END;
  fix := CASE WHEN level <> 'ok' THEN array_to_string(v_future, ' ') END;
  RETURN NEXT;

  code := 'exports';
  level := 'ok';
  what := 'the retention waits for no export';
  fix := NULL;
  FOR v_row IN
    SELECT h.name, h.lake, h.held_since, h.advanced_at
    FROM messages.list_exports() AS h
    WHERE h.held_since < messages.now() - interval '1 day'
    ORDER BY h.held_since
  LOOP
    level := 'warn';
    what := format('the retention has waited for the export %s since %s; it last advanced at %s',
      v_row.name, v_row.held_since::timestamptz(0), v_row.advanced_at::timestamptz(0));
    fix := format('run it, or delete it: SELECT messages.delete_export(%L);', v_row.name);
    RETURN NEXT;
  END LOOP;
  IF level = 'ok' THEN
    RETURN NEXT;
  END IF;
END
$$;
