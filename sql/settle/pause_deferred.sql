-- Pause the topics or the channels of messages that their worker defers, until the last of them comes back: a handler
-- found that nothing of them can be processed before. A pause that ends later, or only when it is resumed, stays as it
-- is. While another transaction keeps the policies for longer than lock_timeout, nothing is paused: the messages come
-- back all the same, and their handlers ask again.
-- Called by: defer, before it locks messages: who changes a policy waits for no message then. Locks: as pause; deferred
-- messages are only read. Errors: 22023 for another word than topic and channel.
CREATE OR REPLACE FUNCTION messages.pause_deferred(
  p_ids bigint[], p_claim_ids bigint[], p_delays interval[], p_untils timestamptz[], p_pauses text[], p_reasons text[]
)
RETURNS void
LANGUAGE plpgsql
SET lock_timeout = '250ms'
AS $$
DECLARE
  v_now   timestamptz := messages.now();
  v_pause record;
BEGIN
  IF EXISTS (SELECT FROM unnest(p_pauses) AS p (pause) WHERE p.pause NOT IN ('topic', 'channel')) THEN
    RAISE EXCEPTION 'a deferral pauses a topic or a channel, and was asked for %', array_to_string(p_pauses, ', ')
      USING ERRCODE = '22023', HINT = 'use topic, channel or NULL';
  END IF;
  FOR v_pause IN
    SELECT e.topic, e.channel, max(e.until) AS until, min(left(e.reason, 1000)) AS reason
    FROM (
      SELECT m.topic, CASE e.pause WHEN 'channel' THEN m.channel END AS channel, e.reason,
             least(
               CASE
                 WHEN e.until IS NOT NULL THEN e.until
                 WHEN e.delay IS NOT NULL THEN v_now + greatest('0', least(e.delay, '3650 days'))
                 ELSE v_now
               END,
               v_now + interval '3650 days') AS until
      FROM unnest(p_ids, p_claim_ids, p_delays, p_untils, p_pauses, p_reasons)
        AS e (id, claim_id, delay, until, pause, reason)
      JOIN messages.message AS m ON m.id = ANY (ARRAY[e.id]) AND (m.claim_id = e.claim_id) IS TRUE
      WHERE e.pause = 'topic' OR e.pause = 'channel' AND m.channel IS NOT NULL
    ) AS e
    LEFT JOIN LATERAL (
      SELECT t.paused_at, t.resume_at FROM messages.topic AS t WHERE t.topic = e.topic AND e.channel IS NULL
      UNION ALL
      SELECT c.paused_at, c.resume_at FROM messages.channel AS c WHERE c.topic = e.topic AND c.channel = e.channel
      OFFSET 0
    ) AS present ON true
    WHERE e.until > v_now
      AND NOT (messages.is_paused(present.paused_at, present.resume_at, v_now)
               AND coalesce(present.resume_at, 'infinity') >= e.until)
    GROUP BY e.topic, e.channel
    ORDER BY e.topic, e.channel
  LOOP
    BEGIN
      PERFORM messages.pause(v_pause.topic, v_pause.reason, NULL, v_pause.until, v_pause.channel);
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      RETURN;
    END;
  END LOOP;
END
$$;
