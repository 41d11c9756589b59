-- Facts that claims remember, so that each of them finds its messages without reading over those that are gone or not
-- due.

-- Every (topic, priority) that was ever claimed from. at: the position below which it has no ready row; NULL = read
-- from the left edge.
CREATE TABLE messages.low_water (
  topic    text        COLLATE "C" NOT NULL,
  priority smallint    NOT NULL,
  at       timestamptz,
  PRIMARY KEY (topic, priority)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- One row: the time up to which marks may be raised (safe_at), and the next such time (at), which counts once every
-- transaction older than xid has ended. left_edge_at: from when on a run also reads what is below the marks.
CREATE TABLE messages.low_water_mark (
  only_row     boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
  safe_at      timestamptz NOT NULL DEFAULT 'epoch',
  at           timestamptz NOT NULL DEFAULT 'epoch',
  xid          xid8        NOT NULL DEFAULT '0',
  next_run_at  timestamptz NOT NULL DEFAULT 'epoch',
  left_edge_at timestamptz NOT NULL DEFAULT 'epoch'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
INSERT INTO messages.low_water_mark DEFAULT VALUES;

-- The place where the last claim ended that named no place to begin at: the next such claim begins behind it.
-- Rows are only added, and read from the newest on; the tick deletes the others. An updated row would leave its
-- versions behind, and while a snapshot is held each claim would walk over all of them.
CREATE TABLE messages.claim_cursor (
  -- 'channels <topic>', or 'topics <digest of the topics that were wanted together>'.
  walk     text        COLLATE "C" NOT NULL,
  n        bigint      GENERATED ALWAYS AS IDENTITY,
  at       text        COLLATE "C" NOT NULL,
  noted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (walk, n)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The pick of a claim in one topic: the addresses of the rows in the order in which they are to be processed, their
-- bytes, and the messages that end instead of being processed. held_back: limits of channels held back messages that
-- are due; look_again_at: when to look for them again, NULL = when something is settled or a policy changes, at an
-- unknown time.
CREATE TYPE messages.picked AS (
  rows          tid[],
  bytes         bigint,
  over          bigint[],
  expired       bigint[],
  held_back     boolean,
  look_again_at timestamptz
);

-- The rows that a claim takes of one topic next: see messages.plan_claim.
CREATE TYPE messages.claim_plan AS (
  policy     messages.policy,
  room       integer,
  at         timestamptz,
  picked     messages.picked,
  held_back  jsonb,
  is_stopped boolean
);

-- The view of one topic that a claim has before it picks: see messages.look_at_topic. row: a single message to claim,
-- which messages.find_notified has locked.
CREATE TYPE messages.claim_look AS (
  topic              text,
  priority           smallint,
  low                timestamptz,
  first_max_attempts integer,
  policy             messages.policy,
  row                tid,
  is_plain           boolean,
  is_empty           boolean,
  is_in_directory    boolean
);

-- A round over the channels of one topic: see messages.pick_with_channel. The next look begins behind `after`; once it
-- has wrapped, the round ends with `upto`. held: a limit made it skip some that are due; until: when to look again.
CREATE TYPE messages.channel_round AS (
  upto    text,
  after   text,
  wrapped boolean,
  held    boolean,
  until   timestamptz
);

-- The places, i.e. (channel, priority) pairs, of one topic that have a due message: see messages.oldest_due_channels.
CREATE TYPE messages.due_places AS (
  channels   text[],
  priorities smallint[],
  is_all     boolean
);
