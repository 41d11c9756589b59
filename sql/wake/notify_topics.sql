-- Wake armed sleepers: one NOTIFY new_message for each topic with a sleeper that would otherwise look later than p_due.
-- Called by: functions that make existing messages ready (retry, return_attempts, raise_low_water). An INSERT notifies by a trigger.
-- Above READ COMMITTED it always notifies: the snapshot may be older than a sleeper's flag.
-- Locks: none here; PostgreSQL takes its notify lock at commit, only if something was sent.
CREATE OR REPLACE FUNCTION messages.notify_topics(p_topics text[], p_due timestamptz)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  PERFORM messages.notify('new_message', array_agg(rung.topic))
  FROM unnest(p_topics) AS rung (topic)
  WHERE (current_setting('transaction_isolation') <> 'read committed'
      OR EXISTS (
        SELECT FROM messages.sleeper AS s
        WHERE s.armed_until > clock_timestamp()
          AND s.next_look_at > p_due
          AND (s.topics IS NULL OR rung.topic = ANY (s.topics))))
    AND messages.notify_policy(rung.topic) <> 'off'
  HAVING count(*) > 0;
END
$$;
