-- By time, whatever the channel: whether anything in a topic's channels is due at all, in which channels, and when the next is.
-- In the one transaction of a migration it cannot be CONCURRENTLY. While it is built publishes wait.
-- squawk-ignore require-concurrent-index-creation
CREATE INDEX message_due_channel ON messages.message (topic, available_at)
  WHERE claim_id IS NULL AND channel IS NOT NULL;

-- Where the last claim ended that named no place to begin at: the next such claim begins behind it.
-- Rows are only added, and read from the newest on; the tick deletes the others. An updated row would leave its versions behind, and while a
-- snapshot is held each claim would walk over all of them.
CREATE TABLE messages.claim_cursor (
  -- 'channels <topic>', or 'topics <digest of the topics that were wanted together>'.
  walk     text        COLLATE "C" NOT NULL,
  n        bigint      GENERATED ALWAYS AS IDENTITY,
  at       text        COLLATE "C" NOT NULL,
  noted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (walk, n)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- They have more arguments now.
-- squawk-ignore ban-drop-function
DROP FUNCTION IF EXISTS messages.due_places(text, text, text, timestamptz, integer);
-- squawk-ignore ban-drop-function
DROP FUNCTION IF EXISTS messages.pick_channels(messages.policy, timestamptz, text, integer, bigint);
-- squawk-ignore ban-drop-function
DROP FUNCTION IF EXISTS messages.pick_places(messages.policy, timestamptz, text[], smallint[], integer[], integer, bigint);
-- squawk-ignore ban-drop-function
DROP FUNCTION IF EXISTS messages.redrive_where(
  text, text, text, timestamptz, timestamptz, text, integer, double precision, interval, boolean);

-- Which topics use a policy that publishing has to look at, as a set of bits: bit 1 to 62 stand for the topics with this hash, bit 0 is always set.
-- The trigger admit looks up the policy of a row only where the bit of its topic is set, so that the policies of one topic cost the rows of
-- others nothing. Kept as messages.policed is; no publisher can write it.
CREATE SEQUENCE messages.policed_topics AS bigint;
SELECT setval('messages.policed_topics', 1);
