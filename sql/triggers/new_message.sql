-- The wake-up: an INSERT into messages.message rings new_message, but only if somebody sleeps who would look too late.
-- Payload: the id for a one-row insert, else each topic once. It is a hint; nothing is ever executed from it.
--
-- A NOTIFY holds a lock of the whole cluster over the commit's flush, so that one per insert caps all commits at the flush rate.
-- Hence the armed sleeper: see docs/explanation/wake-up.md and tests/models/. Above READ COMMITTED the snapshot may be
-- older than a sleeper's flag, so there it rings whenever somebody may be armed. The caller's rights: it only reads messages.sleeper and messages.topic.
-- Locks: nothing; PostgreSQL takes its notify lock at commit, only if something was sent.
CREATE OR REPLACE FUNCTION messages.new_message()
RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
  v_blind boolean;
BEGIN
  -- What every publish pays: one look at a sequence, which no snapshot hides, and only while somebody may be armed one at a table with a row
  -- per daemon. As a WHEN of the trigger it costs twice as much: PostgreSQL reads and prepares its text anew in every statement.
  IF pg_sequence_last_value('messages.armed') < date_part('epoch', clock_timestamp()) THEN
    RETURN NULL;
  END IF;
  v_blind := current_setting('transaction_isolation') <> 'read committed';
  IF NOT v_blind AND NOT EXISTS (SELECT FROM messages.sleeper AS s WHERE s.armed_until > clock_timestamp()) THEN
    RETURN NULL;
  END IF;

  PERFORM pg_notify('new_message', CASE WHEN count(*) = 1 AND min(rung.total) = 1 THEN min(rung.id)::text ELSE rung.topic END)
  FROM (
    SELECT f.id, f.topic, count(*) OVER () AS total
    FROM fresh AS f
    WHERE messages.notify_policy(f.topic) <> 'off'
      AND (v_blind OR EXISTS (
        SELECT FROM messages.sleeper AS s
        WHERE s.armed_until > clock_timestamp()
          AND s.next_look_at > f.available_at
          AND (s.topics IS NULL OR f.topic = ANY (s.topics))))
  ) AS rung
  GROUP BY rung.topic;
  RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER new_message
AFTER INSERT ON messages.message
REFERENCING NEW TABLE AS fresh
FOR EACH STATEMENT EXECUTE FUNCTION messages.new_message();
