-- Returns which row of messages.topic sets the retention of a topic: its own, that of the most specific pattern that
-- sets one, or '*'.
-- Called by: purge_archive_pages, for each row. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.retention_setter(p_topic text)
RETURNS text
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_name text;
BEGIN
  FOREACH v_name IN ARRAY messages.names_of(p_topic) LOOP
    IF EXISTS (SELECT FROM messages.topic AS t WHERE t.topic = v_name AND t.retention IS NOT NULL) THEN
      RETURN v_name;
    END IF;
  END LOOP;
  RETURN '*';
END
$$;
