-- What messages that ended, or that the queue itself put back, change about the counters of topics with max_depth. Such transactions only add
-- rows, so that none waits for another, or for a publisher; whoever holds the counter's row adds them up (fold_depth).
-- What a topic holds is its counter and all of its changes together, in every snapshot.
CREATE TABLE messages.depth_change (
  topic  text   COLLATE "C" NOT NULL,
  change bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX depth_change_topic ON messages.depth_change (topic);

-- It asked whether somebody held the counter of the topic.
-- squawk-ignore ban-drop-function
DROP FUNCTION IF EXISTS messages.end_picked(text, messages.picked, text);
