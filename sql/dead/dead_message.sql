-- Reacts to messages that died: adds their number to `messages.dead_count`, creates one row of `messages.alert` and one
-- notification of `dead_message` per topic, result and fingerprint. With `dead_letter` it creates a live copy of each
-- in `<topic>.dlq`, with the same channel, priority, contents, headers, state, `timeout`, `backoff` and `retention`, no
-- key, `max_attempts` 1, `origin_id` = the dead message, `original_topic`, `dlq_moved_at`. A limit of that topic never
-- refuses the copy, and the copy has no time to live. A message that dies in a `.dlq` topic, or in a topic with a name
-- of more than 196 bytes, is not copied.
--
-- Errors: none.
-- Locks: the rows it inserts.
-- Called by: archive, in the same statement.
-- Inside: It is not a trigger of the archive: that would copy each row of each success, only to find none to react to.
CREATE OR REPLACE FUNCTION messages.dead_message(p_ids bigint[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_dead record;
BEGIN
  FOR v_dead IN
    WITH raised AS (
      INSERT INTO messages.alert (
        topic, result, error_fingerprint, count, first_message_id, last_message_id, sample_error)
      SELECT a.topic, a.result, a.error_fingerprint, count(*), min(a.id), max(a.id),
             messages.cut_error(min(a.error), 1000)
      FROM messages.message_archive AS a
      WHERE a.id = ANY (p_ids) AND a.archived_at = now()
      GROUP BY a.topic, a.result, a.error_fingerprint
      RETURNING alert.topic, alert.result, alert.count, alert.first_message_id
    ), counted AS (
      INSERT INTO messages.dead_count (topic, result, count, died_at)
      SELECT r.topic, r.result, sum(r.count), date_bin('10 minutes', now(), 'epoch')
      FROM raised AS r GROUP BY r.topic, r.result
    )
    SELECT r.topic, r.count, r.first_message_id FROM raised AS r
  LOOP
    PERFORM messages.notify('dead_message', ARRAY[
      CASE WHEN v_dead.count = 1 THEN v_dead.first_message_id::text ELSE v_dead.topic || ' ' || v_dead.count END]);
  END LOOP;

  WITH copied AS (
    INSERT INTO messages.message (
      topic, channel, priority, payload, body, headers, state, available_at, max_attempts, timeout, backoff,
      retention, origin_id, original_topic, dlq_moved_at, redrives)
    SELECT a.topic || '.dlq', a.channel, a.priority, a.payload, a.body, a.headers, a.state, messages.now(), 1,
           a.timeout, a.backoff, a.retention, a.id, a.topic, messages.now(), a.redrives
    FROM messages.message_archive AS a
    JOIN messages.inherited_policy AS d ON d.topic = messages.inherits_from(a.topic)
    LEFT JOIN messages.topic AS t ON t.topic = a.topic
    WHERE a.id = ANY (p_ids) AND a.archived_at = now()
      AND coalesce(t.dead_letter, d.dead_letter)
      AND right(a.topic, 4) <> '.dlq' AND octet_length(a.topic) <= 196
      AND num_nonnulls(a.payload, a.body) = 1
      -- A message that is too large as text, from a time when that was not refused, would be refused now.
      AND messages.is_within_size_limit(a.payload, a.headers)
    ORDER BY a.id
    RETURNING message.id, message.origin_id
  )
  INSERT INTO messages.dead_letter (origin_id, message_id)
  SELECT c.origin_id, c.id FROM copied AS c;
END
$$;
