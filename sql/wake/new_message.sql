-- The wake-up: an INSERT into messages.message sends NOTIFY new_message, but only if a worker sleeps that would look
-- too late. (For topics with notify = 'always' the trigger apply_publish_policies sends it.) Payload: the id for a
-- one-row insert, else each topic once. It is a hint; nothing is ever executed from it.
--
-- A NOTIFY holds a lock of the whole cluster over the commit's flush, so that one per insert caps all commits at the
-- flush rate. Hence the armed sleeper: see docs/explanation/wake-up.md and tests/models/. notify_inserted decides which
-- topics are notified. It runs with the publisher's rights, who may read the sleepers and what topics say of notify. It
-- runs with the publisher's search_path, even a superuser's: setting one would cost each publish as much as the rest of
-- this function. So every name and operator here is qualified; an operator too, for PostgreSQL prefers an exact one of
-- the path to one that needs a cast.
-- Locks: nothing; PostgreSQL takes its notify lock at commit, only if something was sent.
CREATE OR REPLACE FUNCTION messages.new_message()
RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  -- The cost of every publish: one look at a sequence, which no snapshot hides, and only while a sleeper may be armed
  -- one at a table with a row per daemon. As a WHEN of the trigger it costs twice as much: PostgreSQL reads and
  -- prepares its text again in every statement. The sequence holds whole seconds, rounded up, and the clock its
  -- fractions: who is armed is never taken for one who was.
  IF pg_catalog.pg_sequence_last_value('messages.armed_until') OPERATOR(pg_catalog.<)
    pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) THEN
    RETURN NULL;
  END IF;
  PERFORM messages.notify_inserted(
    pg_catalog.array_agg(t.topic), pg_catalog.array_agg(t.due),
    CASE WHEN pg_catalog.sum(t.count) OPERATOR(pg_catalog.=) 1 THEN pg_catalog.min(t.id) END)
  FROM (
    SELECT f.topic::pg_catalog.text AS topic, pg_catalog.min(f.available_at) AS due, pg_catalog.min(f.id) AS id,
           pg_catalog.count(*) AS count
    FROM fresh AS f
    GROUP BY f.topic
  ) AS t;
  RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER new_message
AFTER INSERT ON messages.message
REFERENCING NEW TABLE AS fresh
FOR EACH STATEMENT EXECUTE FUNCTION messages.new_message();
