-- Side tables of the limits: each holds rows only for topics and channels that are limited.

-- What differs from the topic's policy for one channel.
CREATE TABLE messages.channel (
  topic        text     COLLATE "C" NOT NULL,
  channel      text     COLLATE "C" NOT NULL,
  concurrency  integer  CHECK (concurrency >= 0),
  min_interval interval CHECK (min_interval >= '0'),
  paused_at    timestamptz,
  resume_at    timestamptz,
  paused_by    text,
  PRIMARY KEY (topic, channel)
);

-- One GCRA timestamp ("theoretical arrival time") per limited topic or channel.
CREATE TABLE messages.rate (
  kind    text        NOT NULL CHECK (kind IN ('dequeue', 'publish', 'channel')),
  topic   text        COLLATE "C" NOT NULL,
  channel text        COLLATE "C" NOT NULL DEFAULT '',
  free_at timestamptz NOT NULL,
  PRIMARY KEY (kind, topic, channel)
) WITH (fillfactor = 50);

-- The counter of a topic with max_depth.
CREATE TABLE messages.depth (
  topic text   COLLATE "C" PRIMARY KEY,
  rows  bigint NOT NULL CHECK (rows >= 0)
) WITH (fillfactor = 50);
