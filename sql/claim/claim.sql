-- Lock a batch of ready messages for a worker.
-- Called by: workers. p_topics: what the worker handles; p_slots: at most so many of each topic (NULL = no bound of its own); p_limit and
-- p_bytes bound the batch: it ends with the message that reaches p_bytes, as they are handed out, or sooner once it has half of them;
-- p_lock_duration: for this claim instead of the topic's, at most 7 days; p_start: how many of the batch start at once; the others wait in
-- the worker, and their run is not counted yet (NULL = all start).
-- p_prefetch: how many of p_slots would wait in the worker for a few milliseconds: so many fewer of a topic are locked where it, or one of its
-- channels, has a limit, which they would use up (NULL = none).
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
  p_prefetch       integer[] DEFAULT NULL,
  p_contents       boolean   DEFAULT true
)
RETURNS SETOF messages.claimed
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_row messages.claimed_or_due;
BEGIN
  -- Short, with numbers for the arguments: the server's log has this statement with each message that ends here.
  FOR v_row IN SELECT * FROM messages.claim_with_next_due($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, false) LOOP
    EXIT WHEN v_row.id IS NULL;
    RETURN NEXT (
      v_row.id, v_row.claim_id, v_row.topic, v_row.channel, v_row.key, v_row.priority, v_row.attempt, v_row.max_attempts, v_row.payload,
      v_row.body, v_row.headers, v_row.state, v_row.lock_duration_s, v_row.timeout_s, v_row.waited_s, v_row.elapsed_s,
      v_row.runs)::messages.claimed;
  END LOOP;
END
$$;
