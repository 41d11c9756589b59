-- Lock a batch of ready messages for a worker.
-- Called by: workers. p_topics: what the worker handles; p_slots: at most so many of each topic (NULL = no bound of its own); p_limit and
-- p_bytes bound the batch: it ends with the message that reaches p_bytes, as they are handed out; p_lock_duration: for this claim instead of the
-- topic's, at most 7 days; p_start: how many of the batch start at once; the others wait in the worker, and their run is not counted yet
-- (NULL = all start).
-- p_after_topic and p_after_channels ({"topic": "channel"}): where the last claim ended. The walk continues from there, so that a flood in
-- one topic or channel delays the others by at most one batch. A claim without these arguments continues where the last such claim of the
-- same topics, or in the same topic's channels, ended.
-- p_contents false: lock them only, and hand out no payload, body, headers or state (read_claimed returns these): for a worker that could
-- not take in what it claimed, and looks for the message that it was.
-- Locks: as claim_with_next_due, which does the work and also says what limits held back.
-- (In plpgsql, since a function in SQL is planned again by each call: that took a tenth of a claim.)
-- Result: the messages in the order of the walk, each with the claim_id that every settle must show. JSON is returned as text: a value that
-- a client cannot decode then affects one message, not the batch.
CREATE OR REPLACE FUNCTION messages.claim(
  p_worker         text,
  p_topics         text[],
  p_limit          integer,
  p_slots          integer[] DEFAULT NULL,
  p_bytes          bigint    DEFAULT 16777216,
  p_lock_duration  interval  DEFAULT NULL,
  p_after_topic    text      DEFAULT NULL,
  p_after_channels jsonb     DEFAULT NULL,
  p_start          integer   DEFAULT NULL,
  p_contents       boolean   DEFAULT true
)
RETURNS SETOF messages.claimed
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  RETURN QUERY
  SELECT c.id, c.claim_id, c.topic, c.channel, c.key, c.priority, c.attempt, c.max_attempts, c.payload, c.body, c.headers, c.state,
         c.lock_duration_s, c.timeout_s, c.waited_s, c.elapsed_s, c.runs
  FROM messages.claim_with_next_due(
    p_worker, p_topics, p_limit, p_slots, p_bytes, p_lock_duration, p_after_topic, p_after_channels, p_start, p_contents, false) AS c
  WHERE c.id IS NOT NULL;
END
$$;
