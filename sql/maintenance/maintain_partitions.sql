-- Creates the archive's partitions of today and the following days, and drops those that are older than the longest
-- `retention` of all topics, unless an [export](#exports) has not read all of them. Rows of these days that are in the
-- default partition are moved; rows of past days stay there until `messages.purge` deletes them. Messages whose own
-- `retention` is not over when their day is dropped are moved to the default partition.
--
-- Result: how many partitions were created or dropped.
-- Errors: 55P03 if a session reads the archive for long: the next tick tries again.
-- Locks: ACCESS EXCLUSIVE on the default partition while a partition is created, on the whole archive while one is
-- dropped. It waits for these locks for 100 ms at most.
-- Called by: tick.
-- Inside: Both wait for at most 100 ms, since every settle waits behind them. 100 ms is below deadlock_timeout: a
-- settle that waits for a row of this tick is never the one that is cancelled.
CREATE OR REPLACE FUNCTION messages.maintain_partitions(p_days_ahead integer DEFAULT 7)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET lock_timeout = '100ms'
AS $$
DECLARE
  v_today date := (messages.now() AT TIME ZONE 'UTC')::date;
  v_keep  interval := (SELECT max(t.retention) FROM messages.topic AS t);
  v_day   date;
  v_name  text;
  v_did   bigint := 0;
BEGIN
  FOR v_day IN SELECT v_today + n FROM generate_series(0, p_days_ahead) AS n LOOP
    v_name := 'message_archive_' || to_char(v_day, 'YYYYMMDD');
    CONTINUE WHEN to_regclass('messages.' || v_name) IS NOT NULL;
    -- Before its rows are moved: one that came in between would not fit the default partition any more and fail the
    -- ATTACH.
    LOCK TABLE messages.message_archive_default IN ACCESS EXCLUSIVE MODE;
    EXECUTE format(
      'CREATE TABLE messages.%I (LIKE messages.message_archive INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', v_name);
    EXECUTE format('ALTER TABLE messages.%I REPLICA IDENTITY FULL, DISABLE ROW LEVEL SECURITY', v_name);
    EXECUTE format(
      'WITH moved AS (DELETE FROM messages.message_archive_default WHERE archived_at >= %1$L AND archived_at < %2$L '
      'RETURNING *) '
      'INSERT INTO messages.%3$I SELECT * FROM moved',
      to_char(v_day, 'YYYY-MM-DD 00:00+00'), to_char(v_day + 1, 'YYYY-MM-DD 00:00+00'), v_name);
    EXECUTE format(
      'ALTER TABLE messages.message_archive ATTACH PARTITION messages.%I FOR VALUES FROM (%L) TO (%L)',
      v_name, to_char(v_day, 'YYYY-MM-DD 00:00+00'), to_char(v_day + 1, 'YYYY-MM-DD 00:00+00'));
    v_did := v_did + 1;
  END LOOP;

  FOR v_name IN
    SELECT d.name FROM messages.archive_days() AS d
    WHERE d.is_ours AND d.day + 1 <= ((messages.now() - v_keep) AT TIME ZONE 'UTC')::date
  LOOP
    CONTINUE WHEN NOT messages.is_exported(v_name);
    -- Anyone who still writes into that day is waited for, and what came from there is looked at, before it is gone for
    -- good.
    LOCK TABLE ONLY messages.message_archive IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE messages.%I IN ACCESS EXCLUSIVE MODE', v_name);
    CONTINUE WHEN NOT messages.is_exported(v_name);
    -- Only once it is detached does the default partition take rows of that day.
    EXECUTE format('ALTER TABLE messages.message_archive DETACH PARTITION messages.%I', v_name);
    EXECUTE format(
      'INSERT INTO messages.message_archive_default SELECT * FROM messages.%I AS a '
      'WHERE a.retention IS NOT NULL AND (a.archived_at AT TIME ZONE ''UTC'') + a.retention > $1', v_name)
    USING messages.now() AT TIME ZONE 'UTC';
    EXECUTE format('DROP TABLE messages.%I', v_name);
    DELETE FROM messages.purge_mark AS k WHERE k.partition = v_name;
    -- Rows that it leaves behind in side tables are the oldest: prune_orphans begins again there.
    PERFORM setval('messages.orphan_cursor', 0);
    v_did := v_did + 1;
  END LOOP;
  RETURN v_did;
END
$$;
