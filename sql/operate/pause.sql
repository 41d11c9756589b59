-- Stops a topic, one of its channels (`p_channel`), the topics of a pattern (`orders.*`), or all topics (`*`): no
-- message of it is claimed until it is resumed, or until `p_until` or `p_resume_in` from now. The pause takes effect
-- for all workers at once: each claim reads it, and the notification `topic_changed` wakes workers that sleep. Running
-- messages may finish, and so may messages that a worker has prefetched. Publishing continues.
--
-- The user, the reason and the start of the pause are in `paused_by`, `paused_reason` and `paused_at` of
-- `messages.topic` or `messages.channel`, whose row is created if it is missing. Pausing something that is already
-- paused replaces the user, the reason and the end.
--
-- Result: the end of the pause; NULL: it lasts until it is resumed.
-- Errors: 22004 without a topic; 22023 for an invalid name, if both `p_resume_in` and `p_until` are given, and for an
-- end that is not within the next 3650 days.
-- Locks: the row; for a topic also the row of `messages.mutex` for policies, as `messages.lock_policies` does.
-- Repeat: safe.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.pause(
  p_topic     text,
  p_reason       text        DEFAULT NULL,
  p_resume_in interval    DEFAULT NULL,
  p_until     timestamptz DEFAULT NULL,
  p_channel   text        DEFAULT NULL
)
RETURNS timestamptz
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now   timestamptz := messages.now();
  v_until timestamptz;
BEGIN
  IF p_topic IS NULL THEN
    RAISE EXCEPTION 'pause needs a topic' USING ERRCODE = '22004', HINT = 'name one, or * for all';
  END IF;
  IF p_resume_in IS NOT NULL AND p_until IS NOT NULL THEN
    RAISE EXCEPTION 'pause got both resume_in (%) and until (%)', p_resume_in, p_until
      USING ERRCODE = '22023', HINT = 'give one of them';
  END IF;
  IF p_resume_in NOT BETWEEN '1 ms' AND '3650 days' THEN
    RAISE EXCEPTION 'resume_in of a pause is %', p_resume_in
      USING ERRCODE = '22023', HINT = 'use an interval from 1 ms to 3650 days';
  END IF;
  v_until := coalesce(p_until, v_now + p_resume_in);
  IF v_until <= v_now OR v_until > v_now + interval '3650 days' THEN
    RAISE EXCEPTION 'until of a pause is %', v_until
      USING ERRCODE = '22023', HINT = 'use a time to come, within 3650 days';
  END IF;

  IF p_channel IS NULL THEN
    -- Somebody may take the row away between the two statements.
    LOOP
      -- An INSERT alone would be checked as a new row, and a new row of defaults has to be whole.
      INSERT INTO messages.topic AS t (topic)
      SELECT p_topic WHERE NOT EXISTS (SELECT FROM messages.topic AS known WHERE known.topic = p_topic)
      ON CONFLICT DO NOTHING;
      UPDATE messages.topic AS t
      SET paused_at = CASE WHEN messages.is_paused(t.paused_at, t.resume_at, v_now) THEN t.paused_at ELSE v_now END,
          resume_at = v_until, paused_by = messages.actor(), paused_reason = p_reason
      WHERE t.topic = p_topic;
      EXIT WHEN FOUND;
    END LOOP;
  ELSE
    INSERT INTO messages.channel AS c (topic, channel, paused_at, resume_at, paused_by, paused_reason)
    VALUES (p_topic, p_channel, v_now, v_until, messages.actor(), p_reason)
    ON CONFLICT (topic, channel) DO UPDATE
    SET paused_at = CASE WHEN messages.is_paused(c.paused_at, c.resume_at, v_now) THEN c.paused_at ELSE v_now END,
        resume_at = excluded.resume_at, paused_by = excluded.paused_by, paused_reason = excluded.paused_reason;
  END IF;
  RETURN v_until;
END
$$;
