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

-- The cookies of browsers, by their SHA-256 too. A session is of a token, and has its rights; or of a user whom a
-- provider of OpenID Connect has identified, and has the rights of this login.
CREATE TABLE messages.web_session (
  digest     bytea       PRIMARY KEY CHECK (octet_length(digest) = 32),
  token      text        COLLATE "C" REFERENCES messages.token (name) ON DELETE CASCADE,
  opened_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL,
  user_name  text        COLLATE "C",
  roles      text[],
  topics     text[],
  CHECK (num_nonnulls(user_name, roles, topics) = CASE WHEN token IS NULL THEN 3 ELSE 0 END)
);
CREATE INDEX web_session_token ON messages.web_session (token);
CREATE INDEX web_session_user ON messages.web_session (user_name) WHERE user_name IS NOT NULL;
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

-- The key of signed URLs, as the two blocks of HMAC-SHA-256: the key, filled with zeros to 64 bytes, XOR 0x36 and 0x5c.
-- One row, made here, which only the owner reads. A new key makes all URLs invalid: delete the row, and insert another
-- by this statement.
CREATE TABLE messages.signing_key (
  inner_key bytea       NOT NULL CHECK (octet_length(inner_key) = 64),
  outer_key bytea       NOT NULL CHECK (octet_length(outer_key) = 64),
  made_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  is_only   boolean     PRIMARY KEY DEFAULT true CHECK (is_only)
);
-- gen_random_uuid draws 122 bits from the server's strong source.
INSERT INTO messages.signing_key (inner_key, outer_key)
SELECT string_agg(set_byte(E'\\x00', 0, b.byte # 54), '' ORDER BY b.place),
       string_agg(set_byte(E'\\x00', 0, b.byte # 92), '' ORDER BY b.place)
FROM (SELECT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())) AS key
     ) AS k
CROSS JOIN LATERAL (
  SELECT n AS place, CASE WHEN n < 32 THEN get_byte(k.key, n) ELSE 0 END AS byte FROM generate_series(0, 63) AS n
) AS b;
