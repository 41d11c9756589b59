-- The types of the arguments and results of a search for messages.

-- The messages that are looked for; NULL = any. may: patterns of LIKE, one of which the topic has to fit. headers: what
-- the headers contain. worker: which runs it or ended it. attempts: the minimum number.
CREATE TYPE messages.search AS (
  topic       text,
  may         text[],
  may_match   text[],
  states      text[],
  channel     text,
  key         text,
  error       text,
  fingerprint text,
  path        jsonpath,
  vars        jsonb,
  headers     jsonb,
  worker      text,
  attempts    integer,
  since       timestamptz,
  until       timestamptz,
  batch_id    bigint
);

-- The result of a walk over messages: those that fit (and when they ended), how many it examined, the time of the last
-- of those, and the place to go on from; place NULL = that was all.
CREATE TYPE messages.search_page AS (
  ids      bigint[],
  ended    timestamptz[],
  examined bigint,
  reached  timestamptz,
  place    jsonb
);

-- One message that was found; or the last row of a page, whose id is NULL: how many were examined,
-- back to when (created_at), and the place to go on from.
CREATE TYPE messages.search_result AS (
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
  examined          bigint,
  place             jsonb
);
