-- Deletes messages that ended before a given time, of one topic or of all, with any result. Each call covers a number
-- of pages of 8 kB of one day's partition, so that you can go through the archive in short transactions. Rows that an
-- [export](#exports) has not read yet are kept.
--
-- Arguments: `p_place`: the `place` that the last call returned; NULL = from the beginning. `p_pages`: how many pages.
-- Result: `deleted`: how many. `place`: the `p_place` of the next call; NULL = everything is done.
-- Errors: 22023 for a time in the future, a place that no call returned, an invalid number of pages.
-- Locks: the rows it deletes.
-- Repeat: safe.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.purge_archive(
  p_before timestamptz, p_topic text DEFAULT NULL, p_place text DEFAULT NULL, p_pages integer DEFAULT 1000,
  OUT deleted bigint, OUT place text
)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_name text   := coalesce(split_part(p_place, ':', 1), '');
  v_from bigint := 0;
  v_day  record;
BEGIN
  IF p_before IS NULL OR p_before > messages.now() THEN
    RAISE EXCEPTION 'a purge needs a time that is over, found %', coalesce(p_before::text, 'NULL')
      USING ERRCODE = '22023';
  END IF;
  IF p_pages IS NULL OR p_pages NOT BETWEEN 1 AND 1000000 THEN
    RAISE EXCEPTION 'pages of a purge are %', coalesce(p_pages::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 to 1000000';
  END IF;
  IF p_place !~ '^message_archive_([0-9]{8}|default):[0-9]{1,10}$' THEN
    RAISE EXCEPTION 'place of a purge is "%"', p_place
      USING ERRCODE = '22023', HINT = 'use what the call before returned, or NULL';
  END IF;
  IF p_place IS NOT NULL THEN
    v_from := split_part(p_place, ':', 2)::bigint;
  END IF;

  SELECT d.name, d.pages INTO v_day
  FROM messages.archive_days() AS d
  WHERE d.is_ours AND d.name >= v_name COLLATE "C" AND (d.day IS NULL OR d.day <= (p_before AT TIME ZONE 'UTC')::date)
  ORDER BY d.name COLLATE "C"
  LIMIT 1;
  deleted := 0;
  IF v_day.name IS NULL THEN
    RETURN;
  END IF;
  -- The day before may have been dropped since the last run.
  IF v_day.name <> v_name THEN
    v_from := 0;
  END IF;
  deleted := messages.purge_archive_pages(v_day.name, v_from, v_from + p_pages, p_topic, p_before);
  IF deleted > 0 THEN
    PERFORM messages.audit_action(
      'purge_archive', p_topic, v_day.name, jsonb_build_object('count', deleted, 'before', p_before));
  END IF;
  IF v_from + p_pages < v_day.pages THEN
    place := format('%s:%s', v_day.name, v_from + p_pages);
    RETURN;
  END IF;
  SELECT d.name || ':0' INTO place
  FROM messages.archive_days() AS d
  WHERE d.is_ours AND d.name > v_day.name COLLATE "C"
    AND (d.day IS NULL OR d.day <= (p_before AT TIME ZONE 'UTC')::date)
  ORDER BY d.name COLLATE "C"
  LIMIT 1;
END
$$;
