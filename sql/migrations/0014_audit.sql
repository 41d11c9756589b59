-- Who did what by hand, and what a search for messages is made of.

-- Insert-only; the tick forgets what is older than a year. Whatever operators do writes here by itself: the functions they call, and triggers
-- for what they change directly. What workers and the maintenance do is not in it: that is the history of each message.
CREATE TABLE messages.audit (
  id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at      timestamptz NOT NULL,
  -- Who it was: what the caller says of itself (the setting messages.actor), else its user in the database, which db_user always names.
  actor   text        NOT NULL,
  db_user text        NOT NULL DEFAULT session_user,
  action  text        NOT NULL,
  -- NULL: it was about no topic, or about several.
  topic   text        COLLATE "C",
  -- The one thing that it was done to, by its name or id; NULL: to several, or to the topic itself.
  target  text,
  detail  jsonb       NOT NULL DEFAULT '{}'
);

-- What messages are looked for; NULL = any. may: patterns of LIKE, one of which the topic has to fit.
CREATE TYPE messages.search AS (
  topic       text,
  may         text[],
  states      text[],
  channel     text,
  key         text,
  error       text,
  fingerprint text,
  path        jsonpath,
  vars        jsonb,
  since       timestamptz,
  until       timestamptz
);

-- What a walk over messages came to: those that fit (and when they ended), how many it looked at, the time of the last of those, and the
-- place to go on from; place NULL = that was all.
CREATE TYPE messages.walked AS (
  ids     bigint[],
  ended   timestamptz[],
  looked  bigint,
  reached timestamptz,
  place   jsonb
);

-- One message that was found; or the last row of a page, whose id is NULL: how many were looked at,
-- back to when (created_at), and the place to go on from.
CREATE TYPE messages.found AS (
  id                bigint,
  topic             text,
  channel           text,
  key               text,
  priority          smallint,
  state             text,
  attempts          integer,
  redrives          integer,
  created_at        timestamptz,
  available_at      timestamptz,
  worker            text,
  locked_at         timestamptz,
  lock_expires_at   timestamptz,
  archived_at       timestamptz,
  error             text,
  error_fingerprint text,
  preview           text,
  looked            bigint,
  place             jsonb
);
