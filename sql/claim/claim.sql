-- Locks a batch of ready messages for a worker and counts one attempt for each.
--
-- Within a topic (or a channel of it), lower `priority` numbers come first, then the messages that have been available
-- longest. Channels take turns. In an `ordered` topic a claim takes only the first message of a channel, and no other
-- before that one has ended. The claim itself enforces the limits of the policy, across all workers: a worker may
-- process every message that it receives.
--
-- Three kinds of messages are not returned; the claim archives them instead. Messages whose attempts are used up,
-- because the limit was lowered in the meantime, are archived as `failed`. Those whose `expires_at` has passed are
-- archived as `expired`. Those whose contents are larger than 32 MiB as text, which were published before a publish
-- refused that, are archived as `rejected`, with the size as the error and no attempt counted.
--
-- Arguments: `p_worker`: any text that names the worker; it is shown to people, and `release_orphaned` looks for it; it
-- proves nothing. `p_topics`: the topics the worker handles, and [patterns](#patterns-of-topics) like `orders.*`; a
-- topic belongs to its own name, else to the most specific pattern of the list. `p_limit`: the maximum number of
-- messages, never more than 10,000. `p_slots`: for each topic or pattern, the maximum number of its messages; NULL = no
-- limit of its own, 0 = none, also not for a less specific pattern. `p_bytes`: the batch ends with the message at which
-- the size of the batch (payloads, headers and states as text, and bodies) reaches this sum, or sooner once it has half
-- of it; so the claim takes at least one message, however large it is. `p_lock_duration`: replaces the topic's
-- `lock_duration`. `p_after_topic`, `p_after_channels` (`{"topic": "channel"}`): where the worker's last claim ended.
-- The claim takes topics and channels in turn from there, so that a flood in one topic or channel delays the others by
-- one batch at most. Without these arguments a claim continues where the last claim without them ended: for the same
-- list of topics, and in each topic's channels. That position is a row of `messages.claim_cursor`, so all callers share
-- it, over any connection. `p_start`: how many messages of the batch begin at once; the others wait in the worker, and
-- `messages.count_runs` counts their run when they begin; NULL = all begin. Limits count all of them as running.
-- `p_prefetch`: for each topic, how many of its `p_slots` are for messages that would wait in the worker for a few
-- milliseconds; where the topic or its channels have a limit, the claim leaves them out, since they would use up the
-- limit while they wait. `p_contents`: false = payload, body, headers and state are NULL. If a claim failed, or did not
-- return in time, because of one of the messages, the worker claims them without contents, reads each by
-- `messages.read_claimed`, and rejects the one that cannot be read.
-- Result: one row per message, in the order of the claim, of the type `messages.claimed`. No row = no message is ready,
-- limits hold the ready messages back, or other transactions hold them at this moment.
-- Errors: 22004 if worker, topics or limit is NULL. 22023 for an invalid name of a worker
-- (`messages.check_worker_name`), and if `p_lock_duration` is not between 0 and 7 days. 40001 above READ COMMITTED.
-- 25001 above READ COMMITTED in a topic with limits: the claim could not see what others have claimed.
-- Locks: the rows it takes, skipping those that other transactions hold, until the transaction ends; after the commit
-- they stay locked as a claim until `lock_expires_at`. In a topic with `max_concurrency`, `worker_concurrency`,
-- `dequeue_rate` or an open breaker, the topic's row of `messages.mutex`, for which it waits a quarter of a second; in
-- channels with limits, their rows of `messages.rate`, skipping those that other claims hold. Commit soon: until then
-- no other worker can claim from these topics and channels.
-- Repeat: each call makes a new claim. If the answer was lost, `release_orphaned` returns the claimed messages to the
-- queue.
-- Called by: workers.
-- Inside: In plpgsql, since a function in SQL is planned again by each call: that took a tenth of a claim.
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
      v_row.id, v_row.claim_id, v_row.topic, v_row.channel, v_row.key, v_row.priority, v_row.attempt,
      v_row.max_attempts, v_row.payload, v_row.body, v_row.headers, v_row.state, v_row.lock_duration_s, v_row.timeout_s,
      v_row.waited_s, v_row.elapsed_s, v_row.runs, v_row.batch_id)::messages.claimed;
  END LOOP;
END
$$;
