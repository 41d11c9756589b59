-- Fan-out: what is published to a topic becomes one ordinary message in the topic of each of its subscribers.
-- A topic may subscribe to itself; then its own handlers work the message as well.

CREATE TABLE messages.subscription (
  topic      messages.topic_name NOT NULL,
  subscriber messages.topic_name NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  created_by text        NOT NULL DEFAULT session_user,
  PRIMARY KEY (topic, subscriber)
);
