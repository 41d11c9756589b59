-- Who waits for the end of a message: only for those that stand here does the end ring settled.

CREATE TABLE messages.waiter (
  message_id bigint      PRIMARY KEY,
  until      timestamptz NOT NULL
);
CREATE INDEX waiter_until ON messages.waiter (until);

-- Whether anybody may wait: 2 = yes. A sequence, for the reasons of messages.policed, and one of its own: who waits shall cost publishers nothing.
-- Raised before the waiter is committed, lowered by the tick once none is left.
CREATE SEQUENCE messages.awaited AS smallint;
SELECT setval('messages.awaited', 1);
