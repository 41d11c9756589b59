-- Puts dead messages back into the queue. Each becomes a new message with the same topic, channel, key, priority,
-- payload, headers, state, `max_attempts`, `timeout`, `backoff` and `retention`, no attempts, `redriven_from` = the id
-- of the dead one, and one more in `redrives`. The archive row does not change. The outcomes:
--
-- - `redriven`: it is back in the queue, as `message_id`.
-- - `keyless`: it is back without its key, because a newer message has the key (`key_on_retry = 'keep'`, or the newer
--   message waits for others).
-- - `superseded`: it stays dead: a newer message with its key is ready (`message_id`), or another message of the same
--   call took the key (NULL).
-- - `redriven_before`: it was already redriven, as `message_id`.
-- - `too_often`: it stays dead: it has been through `max_redrives` redrives.
-- - `too_large`: it stays dead: its payload or headers are larger as text than a publish accepts;
--   `messages.redrive_edited` with another payload puts it back.
-- - `not_dead`: it is live, ended with another result, or is unknown.
--
-- Each dead message is redriven only once: the primary key of `messages.redrive_log` ensures this. If its copy in
-- `<topic>.dlq` is waiting, the copy ends as `cancelled`; a copy that is running is left to its worker.
--
-- Arguments: `p_rate`: how many messages become available per second, the first after `p_delay`; NULL = all at once.
-- `p_force`: ignore `max_redrives`.
-- Result: one row per id. `message_id` is the new message or, if there is none, the message that prevented it, if that
-- is known.
-- Errors: 22023 for an invalid rate or delay.
-- Locks: the rows it inserts; it waits for a concurrent redrive of the same message, and for a publish of the same key.
-- Repeat: safe.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.redrive(
  p_ids bigint[], p_rate double precision DEFAULT NULL, p_delay interval DEFAULT '0', p_force boolean DEFAULT false
)
RETURNS TABLE (archived_id bigint, message_id bigint, outcome text)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids      bigint[];
  v_new      bigint[];
  v_outcomes text[];
BEGIN
  SELECT array_agg(b.archived_id), array_agg(b.message_id), array_agg(b.outcome)
  INTO v_ids, v_new, v_outcomes
  FROM messages.redrive_rows(p_ids, NULL, p_rate, p_delay, p_force) AS b;
  PERFORM messages.audit_redrive(
    'redrive', v_ids, v_new, v_outcomes,
    jsonb_build_object('rate', p_rate, 'delay', nullif(p_delay, '0'), 'force', nullif(p_force, false)));
  RETURN QUERY SELECT b.* FROM unnest(v_ids, v_new, v_outcomes) AS b (archived_id, message_id, outcome);
END
$$;
