-- Returns why a message is not running, or how it ended: one row per reason, the most decisive first. `code` is for
-- programs, `reason` for people, `detail` contains the facts behind the reason (times, ids, limits). The codes of a
-- message that waits:
--
-- - `after_dead`, `after`: messages that it comes after: a message that died or was cancelled, with the fix; messages
--   that have not ended.
-- - `outlived`: its time to live has passed; it will be archived as `expired`.
-- - `attempts_used_up`: the limit was lowered; it will be archived as `failed`.
-- - `retrying`, `deferred`, `delayed`, `debounced`: due later: after a failed attempt, by its handler, by its
--   publisher, by further publishes of its key. A message with a `backoff` of its own says so.
-- - `waiting_for_event`: its handler waits for an event, see `messages.signal`.
-- - `paused`: all topics, a pattern, its topic or its channel: by which user, why, until when.
-- - `breaker_open`, `probing`: the breaker of its topic is open, or lets a few messages run as probes.
-- - `unhandled`: no worker handles its topic, see `messages.unhandled_topics`.
-- - `ordered`: another message of its channel comes first: it runs, or waits for its next attempt.
-- - `channel_full`, `channel_interval`: a limit of its channel, and which messages use it up.
-- - `locked`: a session has locked it, its topic or its channel for more than five seconds, and which statement ends
--   that session's lock.
-- - `topic_full`, `worker_full`, `rate`: a limit of its topic, and which messages use it up, or that each worker which
--   handles the topic has used up its own; `set_by` in `detail` is the pattern that sets it.
-- - `workers_busy`: all live workers of its topic had no free slot at their last sign of life.
-- - `behind`: how many ready messages of its topic (or channel) come first; counted up to 1000.
-- - `ready`: nothing holds it back; `patterns` in `detail` are those by which workers handle its topic.
--
-- A message that runs, that has ended, or that is not there has one of these reasons:
--
-- - `running`: by which worker, for how long, which attempt, its progress; when its lock expires; its own `timeout`.
-- - `lock_ran_out`: the next tick ends the attempt; when the last tick ran.
-- - `worker_silent`: the daemon that runs it is silent: see `messages.worker_state`.
-- - `success`, `rejected`, `failed`, `lock_expired`, `expired`, `cancelled`: the result, with the last line of the
--   error, and until when its own `retention` keeps it.
-- - `superseded`: a newer message with its key superseded it.
-- - `redriven`, `dead_letter`, `fanned_out`: the messages that represent it now.
-- - `gone`: the archive no longer contains it, or its publish was rolled back or is not committed yet.
-- - `never_published`: its id is higher than any id so far.
--
-- The last row of a message with a batch is `batch`: how far that is.
--
-- It shows no payload, headers, state or output, and the amount that it reads is bounded, so operators and analysts may
-- call it at any time.
--
-- Result: at least one row.
-- Errors: 22004 for NULL.
-- Locks: none; it only reads.
-- Called by: operators and analysts.
CREATE OR REPLACE FUNCTION messages.explain(p_id bigint)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_message  messages.message;
  v_archived messages.message_archive;
BEGIN
  IF p_id IS NULL THEN
    RAISE EXCEPTION 'explain needs the id of a message' USING ERRCODE = '22004';
  END IF;
  -- First the live ones: a message that ends between the two statements is then found by the second.
  SELECT m.* INTO v_message FROM messages.message AS m WHERE m.id = p_id;
  IF v_message.id IS NOT NULL AND v_message.claim_id IS NOT NULL THEN
    RETURN QUERY SELECT * FROM messages.explain_running(v_message);
    RETURN QUERY SELECT b.* FROM messages.explain_batch(v_message.batch_id) AS b WHERE v_message.batch_id IS NOT NULL;
    RETURN;
  END IF;
  IF v_message.id IS NOT NULL THEN
    RETURN QUERY SELECT * FROM messages.explain_waiting(v_message);
    RETURN QUERY SELECT b.* FROM messages.explain_batch(v_message.batch_id) AS b WHERE v_message.batch_id IS NOT NULL;
    RETURN;
  END IF;
  SELECT a.* INTO v_archived FROM messages.message_archive AS a WHERE a.id = p_id LIMIT 1;
  IF v_archived.id IS NOT NULL THEN
    RETURN QUERY SELECT * FROM messages.explain_ended(v_archived);
    RETURN QUERY
    SELECT b.* FROM messages.explain_batch(v_archived.batch_id) AS b WHERE v_archived.batch_id IS NOT NULL;
    RETURN;
  END IF;
  RETURN QUERY SELECT * FROM messages.explain_missing(p_id);
END
$$;
