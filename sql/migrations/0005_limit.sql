-- Side tables of the limits: each holds rows only for topics and channels that are limited.

-- The settings of one channel that differ from the topic's policy. The trigger check_channel refuses what a setting
-- cannot be.
CREATE TABLE messages.channel (
  topic        text     COLLATE "C" NOT NULL,
  channel      text     COLLATE "C" NOT NULL,
  concurrency  integer,
  min_interval interval,
  paused_at    timestamptz,
  resume_at    timestamptz,
  paused_by    text,
  paused_reason   text,
  PRIMARY KEY (topic, channel)
);

-- One GCRA timestamp ("theoretical arrival time") per limited topic or channel. The row of a channel is also what a
-- claim locks while it counts what the channel has running; blocked_until and blocked_by: in an ordered topic the first
-- message of the channel waits till then.
CREATE TABLE messages.rate (
  kind    text        NOT NULL CHECK (kind IN ('dequeue', 'publish', 'channel')),
  topic   text        COLLATE "C" NOT NULL,
  channel text        COLLATE "C" NOT NULL DEFAULT '',
  free_at timestamptz NOT NULL DEFAULT '-infinity',
  blocked_until timestamptz,
  blocked_by    bigint,
  PRIMARY KEY (kind, topic, channel)
) WITH (fillfactor = 50);

-- A channel of an ordered topic whose first message may not be tried again before a time.
CREATE TYPE messages.channel_block AS (
  topic      text,
  channel    text,
  message_id bigint,
  until      timestamptz
);

-- The counter of a topic with max_depth.
CREATE TABLE messages.depth (
  topic text   COLLATE "C" PRIMARY KEY,
  rows  bigint NOT NULL CHECK (rows >= 0)
) WITH (fillfactor = 50);

-- The changes of these counters by messages that ended, or that the queue itself put back. Such transactions only add
-- rows, so that none waits for another, or for a publisher; the transaction that holds the counter's row adds them up
-- (apply_depth_changes). What a topic holds is its counter and all of its changes together, in every snapshot.
CREATE TABLE messages.depth_change (
  topic  text   COLLATE "C" NOT NULL,
  change bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- It has no key, and a publication may name it: see message_archive.
ALTER TABLE messages.depth_change REPLICA IDENTITY FULL;
CREATE INDEX depth_change_topic ON messages.depth_change (topic);

-- The keys that block further publishes of topics with key_ttl: until their message has ended (free_at NULL), or until
-- free_at.
CREATE TABLE messages.held_key (
  topic      text        COLLATE "C" NOT NULL,
  key        text        COLLATE "C" NOT NULL,
  message_id bigint      NOT NULL,
  free_at    timestamptz,
  PRIMARY KEY (topic, key)
) WITH (fillfactor = 75);
CREATE INDEX held_key_free ON messages.held_key (free_at) WHERE free_at IS NOT NULL;

-- The newest message of each key that was published with throttle. Whether the key is throttled is not stored: that
-- depends on when the message starts, and a claim writes nothing for it. The key is not free before check_at, so that
-- is when the maintenance looks.
CREATE TABLE messages.throttled_key (
  topic        text        COLLATE "C" NOT NULL,
  key          text        COLLATE "C" NOT NULL,
  message_id   bigint      NOT NULL,
  published_at timestamptz NOT NULL,
  throttle     interval    NOT NULL,
  check_at     timestamptz NOT NULL,
  PRIMARY KEY (topic, key)
) WITH (fillfactor = 75);
CREATE INDEX throttled_key_check ON messages.throttled_key (check_at);
