-- Suppresses the delivery of matching alerts for a while. They are still counted; problems that continue after the
-- silence are reported then.
--
-- The table `messages.silence` has one row for each: `id`, `kind`, `topic`, `error_fingerprint`, `until`, `reason`,
-- `created_at`, `created_by`, `ended_at` (when it was removed). Rows are deleted a month after their end.
--
-- Arguments: `p_kind`: `dead_message`, `breaker`, or the kind of a condition. `p_topic`: a name, or a pattern in which
-- `*` stands for any characters. An argument that is NULL matches everything; one of the three has to be given. `p_for`
-- or `p_until`, not both.
-- Result: the number of the silence.
-- Errors: 22004 if nothing is given to match, 22023 for an invalid end.
-- Locks: the row it inserts.
-- Repeat: creates a second silence.
-- Called by: operators (`pgrouse alert silence add`, the page of dead letters).
CREATE OR REPLACE FUNCTION messages.silence(
  p_kind              text        DEFAULT NULL,
  p_topic             text        DEFAULT NULL,
  p_error_fingerprint text        DEFAULT NULL,
  p_for               interval    DEFAULT NULL,
  p_until             timestamptz DEFAULT NULL,
  p_reason               text        DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now   timestamptz := messages.now();
  v_until timestamptz := coalesce(p_until, v_now + p_for);
  v_id    bigint;
BEGIN
  IF num_nonnulls(p_kind, p_topic, p_error_fingerprint) = 0 THEN
    RAISE EXCEPTION 'silence needs something to match'
      USING ERRCODE = '22004', HINT = 'give a kind, a topic or a fingerprint; the topic * is every one';
  END IF;
  IF num_nonnulls(p_for, p_until) <> 1 THEN
    RAISE EXCEPTION 'silence needs its end'
      USING ERRCODE = '22023', HINT = 'give for how long, or until when, and not both';
  END IF;
  IF v_until <= v_now OR v_until > v_now + interval '3650 days' THEN
    RAISE EXCEPTION 'until of a silence is %', v_until
      USING ERRCODE = '22023', HINT = 'use a time to come, within 3650 days';
  END IF;
  INSERT INTO messages.silence AS s (kind, topic, error_fingerprint, until, reason, created_at, created_by)
  VALUES (p_kind, p_topic, p_error_fingerprint, v_until, left(p_reason, 1000), v_now, messages.actor())
  RETURNING s.id INTO v_id;
  PERFORM messages.audit_action('alert.silence', p_topic, v_id::text, jsonb_build_object(
    'kind', p_kind, 'error_fingerprint', p_error_fingerprint, 'until', v_until, 'reason', left(p_reason, 1000)));
  RETURN v_id;
END
$$;
