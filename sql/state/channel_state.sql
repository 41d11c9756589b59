-- Every channel that has a row, with its limits and whether it is paused itself.
-- Read by: explain_stopped, examine_topics, and everything that shows channels. Locks: nothing.
-- paused: by a pause of its own that is in force; of one that is over nothing is shown.
CREATE OR REPLACE VIEW messages.channel_state
WITH (security_invoker = true) AS
SELECT
  c.topic, c.channel, c.concurrency, c.min_interval, p.paused,
  CASE WHEN p.paused THEN c.paused_at END AS paused_at, CASE WHEN p.paused THEN c.paused_by END AS paused_by,
  CASE WHEN p.paused THEN c.paused_reason END AS paused_reason, CASE WHEN p.paused THEN c.resume_at END AS resume_at
FROM messages.channel AS c
CROSS JOIN LATERAL (SELECT messages.is_paused(c.paused_at, c.resume_at, messages.now()) AS paused) AS p;
