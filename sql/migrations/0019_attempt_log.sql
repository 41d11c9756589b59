-- The log lines of attempts, where a worker keeps them (`log_bytes` of a topic).

-- A row stays as long as its message, live or archived. It is found by the claim: an attempt that was handed back
-- leaves its number to the next one.
CREATE TABLE messages.attempt_log (
  message_id bigint      NOT NULL,
  claim_id   bigint      NOT NULL,
  attempt    integer     NOT NULL,
  -- When that claim was made: as `started` of the history.
  locked_at  timestamptz NOT NULL,
  kept_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- The last lines of the attempt, and how many before them were left out.
  lines      text        NOT NULL CHECK (char_length(lines) <= 262144),
  left_out   bigint      NOT NULL CHECK (left_out >= 0),
  PRIMARY KEY (message_id, claim_id)
);
-- The place that messages.prune_orphans has reached; after the last one it begins again.
CREATE SEQUENCE messages.orphan_cursor MINVALUE 0;
