-- Pause a topic, one channel of it, or all topics ('*'): none of its messages is claimed until it is resumed, or until the given time.
-- Called by: operators. p_resume_in or p_until, not both; neither = until it is resumed. p_channel NULL = the whole topic.
-- Running messages are not touched. Pausing what is already paused replaces who, why and until when; its beginning stays.
-- Locks: the row of the topic or channel (made if missing); of a topic also the advisory lock of changed policies.
-- Result: until when; NULL = until it is resumed.
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
    RAISE EXCEPTION 'pause got both resume_in (%) and until (%)', p_resume_in, p_until USING ERRCODE = '22023', HINT = 'give one of them';
  END IF;
  IF p_resume_in NOT BETWEEN '1 ms' AND '3650 days' THEN
    RAISE EXCEPTION 'resume_in of a pause is %', p_resume_in USING ERRCODE = '22023', HINT = 'use an interval from 1 ms to 3650 days';
  END IF;
  v_until := coalesce(p_until, v_now + p_resume_in);
  IF v_until <= v_now OR v_until > v_now + interval '3650 days' THEN
    RAISE EXCEPTION 'until of a pause is %', v_until USING ERRCODE = '22023', HINT = 'use a time to come, within 3650 days';
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
