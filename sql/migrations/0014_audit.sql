-- The log of what people did by hand.

-- Insert-only; the tick deletes what is older than a year. What operators do is written here by itself: by the
-- functions that they call, and by triggers for what they change directly. What workers and the maintenance do is not
-- in it: that is the history of each message.
CREATE TABLE messages.audit (
  id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at      timestamptz NOT NULL,
  -- The person or program: what the caller says of itself (the setting messages.actor), else its user in the database,
  -- which db_user always names.
  actor   text        NOT NULL,
  db_user text        NOT NULL DEFAULT session_user,
  action  text        NOT NULL,
  -- NULL: it was about no topic, or about several.
  topic   text        COLLATE "C",
  -- The one thing that it was done to, by its name or id; NULL: to several, or to the topic itself.
  target  text,
  detail  jsonb       NOT NULL DEFAULT '{}'
);
