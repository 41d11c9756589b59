-- React to messages that end badly: add an alert to the outbox and NOTIFY dead_message.
-- (The WARNING in the server's log is raised by archive.) One alert and one notification per topic, result and fingerprint of the
-- statement; payload: the id when it is one, else topic and count.
-- All deaths are counted by topic and result (messages.dead_count).
-- Topics with dead_letter also get a live copy in <topic>.dlq, for a handler of that topic or for requeue_dead_letters. The copy has one
-- attempt and no key, so it never conflicts. What dies in a .dlq topic gets no further copy, and neither do topics whose name is too long
-- for the suffix.
-- Locks: nothing but the rows it inserts.
CREATE OR REPLACE FUNCTION messages.dead_message()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_dead record;
BEGIN
  IF NOT EXISTS (SELECT FROM fresh AS f WHERE f.result NOT IN ('success', 'cancelled')) THEN
    RETURN NULL;
  END IF;

  FOR v_dead IN
    WITH raised AS (
      INSERT INTO messages.alert (topic, result, error_fingerprint, count, first_message_id, last_message_id, sample_error)
      SELECT f.topic, f.result, f.error_fingerprint, count(*), min(f.id), max(f.id), messages.cut_error(min(f.error), 1000)
      FROM fresh AS f
      WHERE f.result NOT IN ('success', 'cancelled')
      GROUP BY f.topic, f.result, f.error_fingerprint
      RETURNING alert.topic, alert.result, alert.count, alert.first_message_id
    ), counted AS (
      INSERT INTO messages.dead_count (topic, result, count)
      SELECT r.topic, r.result, sum(r.count) FROM raised AS r GROUP BY r.topic, r.result
    )
    SELECT r.topic, r.count, r.first_message_id FROM raised AS r
  LOOP
    PERFORM messages.notify('dead_message', ARRAY[
      CASE WHEN v_dead.count = 1 THEN v_dead.first_message_id::text ELSE v_dead.topic || ' ' || v_dead.count END]);
  END LOOP;

  WITH copied AS (
    INSERT INTO messages.message (
      topic, channel, priority, payload, body, headers, state, available_at, max_attempts, origin_id, original_topic, dlq_moved_at, redrives)
    SELECT f.topic || '.dlq', f.channel, f.priority, f.payload, f.body, f.headers, f.state, messages.now(), 1, f.id, f.topic, messages.now(), f.redrives
    FROM fresh AS f
    CROSS JOIN messages.topic AS d
    LEFT JOIN messages.topic AS t ON t.topic = f.topic
    WHERE d.topic = '*' AND coalesce(t.dead_letter, d.dead_letter)
      AND f.result NOT IN ('success', 'cancelled')
      AND right(f.topic, 4) <> '.dlq' AND octet_length(f.topic) <= 196
      AND num_nonnulls(f.payload, f.body) = 1
      -- What is too large as text, since it came before that was refused, would be refused now.
      AND messages.is_within_size_limit(f.payload, f.headers)
    ORDER BY f.id
    RETURNING message.id, message.origin_id
  )
  INSERT INTO messages.dead_letter (origin_id, message_id)
  SELECT c.origin_id, c.id FROM copied AS c;
  RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER dead_message
AFTER INSERT ON messages.message_archive
REFERENCING NEW TABLE AS fresh
FOR EACH STATEMENT EXECUTE FUNCTION messages.dead_message();
