-- Wake armed sleepers for what a statement inserted: one NOTIFY new_message for each topic, with the id as its payload if it was one
-- message.
-- Called by: the trigger new_message, only while a worker may be armed. It runs with the publisher's rights and only reads messages.sleeper
-- and messages.topic. It is a separate function because the trigger sets no search_path: see there.
-- p_topics, p_due: each topic, and when the first message of it is due; p_id: NULL = it was more than one message.
-- Above READ COMMITTED the snapshot may be older than a sleeper's flag: there it notifies whatever the flags say.
-- Locks: nothing; PostgreSQL takes its notify lock at commit, only if something was sent.
CREATE OR REPLACE FUNCTION messages.notify_inserted(p_topics text[], p_due timestamptz[], p_id bigint)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_blind boolean := current_setting('transaction_isolation') <> 'read committed';
BEGIN
  IF NOT v_blind AND NOT EXISTS (SELECT FROM messages.sleeper AS s WHERE s.armed_until > clock_timestamp()) THEN
    RETURN;
  END IF;

  PERFORM messages.notify('new_message', array_agg(coalesce(p_id::text, rung.topic)))
  FROM unnest(p_topics, p_due) AS rung (topic, due)
  WHERE messages.notify_policy(rung.topic) <> 'off'
    AND (v_blind OR EXISTS (
      SELECT FROM messages.sleeper AS s
      WHERE s.armed_until > clock_timestamp()
        AND s.next_look_at > rung.due
        AND (s.topics IS NULL OR rung.topic = ANY (s.topics))))
  HAVING count(*) > 0;
END
$$;
