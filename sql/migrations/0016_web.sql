-- The users of the web server, and what it must remember: tokens, sessions of browsers, and answers that a repeated
-- request gets again.

-- Only the SHA-256 of a secret is kept; a secret has 256 random bits, so it needs neither salt nor a slow hash.
CREATE TABLE messages.token (
  name         text        COLLATE "C" PRIMARY KEY CHECK (
    name ~ '^[A-Za-z0-9][A-Za-z0-9._:@-]*$' AND octet_length(name) <= 100),
  digest       bytea       NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  roles        text[]      NOT NULL CHECK (
    cardinality(roles) > 0 AND roles <@ ARRAY['viewer', 'publisher', 'worker', 'operator']),
  topics       text[]      NOT NULL CHECK (
    cardinality(topics) BETWEEN 1 AND 100 AND array_position(topics, NULL) IS NULL),
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  created_by   text        NOT NULL DEFAULT session_user,
  -- NULL: never.
  expires_at   timestamptz,
  last_used_at timestamptz,
  revoked_at   timestamptz
) WITH (fillfactor = 50);

-- The cookies of browsers, by their SHA-256 too.
CREATE TABLE messages.web_session (
  digest     bytea       PRIMARY KEY CHECK (octet_length(digest) = 32),
  token      text        COLLATE "C" NOT NULL REFERENCES messages.token (name) ON DELETE CASCADE,
  opened_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL
);
CREATE INDEX web_session_token ON messages.web_session (token);
CREATE INDEX web_session_expires ON messages.web_session (expires_at);

-- Requests with an Idempotency-Key: one row commits together with what the request did, so it was done if and only if
-- the row is there.
CREATE TABLE messages.web_request (
  caller   text        COLLATE "C" NOT NULL,
  key      text        COLLATE "C" NOT NULL CHECK (length(key) BETWEEN 1 AND 200),
  digest   bytea       NOT NULL,
  status   smallint,
  answer   text,
  asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (caller, key)
);
CREATE INDEX web_request_asked ON messages.web_request (asked_at);
