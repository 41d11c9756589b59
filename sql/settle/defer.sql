-- Settles messages that come back later. Nothing failed: the lock is released and the attempt is not counted, so a
-- message may be deferred any number of times.
--
-- A message with a key that has had its first attempt is superseded if another message with the same key is ready, or
-- if a newer one comes back together with it: it is archived as `cancelled`, with the error `superseded: ...`. If the
-- other message waits for its predecessors, it is not ready, and the newest message that comes back does so without its
-- key.
--
-- Arguments: `p_untils`: the time at which each comes back, cut to the years 1970 to 9000; otherwise `p_delays`: the
-- delay from now, cut to 1,000 years; if neither is given, at once. `p_states`: as in `retry`. `p_pauses`: `topic` or
-- `channel` pauses that of the message until it comes back, but for 3,650 days at most, with `p_reasons` as the reason;
-- a pause that lasts longer stays as it is. Nothing is paused for a message whose lock was lost, or while another
-- transaction keeps the policies for longer than 250 ms.
-- Result: the ids whose lock was lost; nothing was changed for them.
-- Errors: 22023 for another pause; 23505 if another message with the same key was committed at this exact moment:
-- repeat the call.
-- Locks: as `messages.pause`, if it pauses; the rows, until the transaction ends; it waits for a transaction that
-- settles, extends or cancels the same rows.
-- Called by: workers.
CREATE OR REPLACE FUNCTION messages.defer(
  p_ids       bigint[],
  p_claim_ids bigint[],
  p_delays    interval[]    DEFAULT NULL,
  p_untils    timestamptz[] DEFAULT NULL,
  p_states    jsonb[]       DEFAULT NULL,
  p_pauses    text[]        DEFAULT NULL,
  p_reasons   text[]        DEFAULT NULL
)
RETURNS bigint[]
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT messages.pause_deferred(p_ids, p_claim_ids, p_delays, p_untils, p_pauses, p_reasons)
  WHERE p_pauses IS NOT NULL;
  SELECT messages.lost_ids(
    p_ids, p_claim_ids,
    messages.return_attempts(p_ids, p_claim_ids, p_delays, p_untils, p_states, 'deferred'), NULL)
$$;
