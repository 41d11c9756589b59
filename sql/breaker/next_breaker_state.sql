-- Compute the next state of a breaker after some attempts ended: all of its transitions.
-- Called by: update_breaker. Locks: nothing.
-- closed: counts within a window, and opens once min_attempts have ended in it and failure_rate of them failed. open:
-- until probe_at, results of earlier attempts are ignored; from then on a failure keeps it open for another pause, and
-- a success without a failure closes it. changed_at is when it opened or closed: a probe that fails does not change it.
-- Policy: {"failure_rate": 0.5, "min_attempts": 20, "window": "1m", "pause": "30s", "probes": 1}; missing keys have the
-- values shown.
CREATE OR REPLACE FUNCTION messages.next_breaker_state(
  p_breaker messages.breaker, p_policy jsonb, p_succeeded bigint, p_failed bigint, p_now timestamptz
)
RETURNS messages.breaker
LANGUAGE plpgsql
IMMUTABLE
AS $$
DECLARE
  v_is    messages.breaker := p_breaker;
  v_pause interval := coalesce((p_policy ->> 'pause')::interval, '30 s');
  v_new   boolean  := p_breaker.window_began_at <= p_now - coalesce((p_policy ->> 'window')::interval, '1 min');
BEGIN
  IF v_is.position = 'open' THEN
    IF v_is.probe_at > p_now OR p_succeeded + p_failed = 0 THEN
      RETURN v_is;
    END IF;
    IF p_failed > 0 THEN
      v_is.probe_at := p_now + v_pause;
      v_is.reason := format('%s of %s probes failed', p_failed, p_succeeded + p_failed);
    ELSE
      v_is.position := 'closed';
      v_is.changed_at := p_now;
      v_is.probe_at := NULL;
      v_is.reason := format('%s probe%s succeeded', p_succeeded, CASE WHEN p_succeeded <> 1 THEN 's' END);
      v_is.window_began_at := p_now;
      v_is.succeeded := 0;
      v_is.failed := 0;
    END IF;
    RETURN v_is;
  END IF;

  v_is.window_began_at := CASE WHEN v_new THEN p_now ELSE v_is.window_began_at END;
  v_is.succeeded := CASE WHEN v_new THEN 0 ELSE v_is.succeeded END + p_succeeded;
  v_is.failed := CASE WHEN v_new THEN 0 ELSE v_is.failed END + p_failed;
  IF v_is.succeeded + v_is.failed >= coalesce((p_policy ->> 'min_attempts')::bigint, 20)
    AND v_is.failed >= coalesce(
      (p_policy ->> 'failure_rate')::double precision, 0.5
    ) * (v_is.succeeded + v_is.failed) THEN
    v_is.position := 'open';
    v_is.changed_at := p_now;
    v_is.probe_at := p_now + v_pause;
    v_is.reason := format('%s of %s attempts failed since %s', v_is.failed, v_is.succeeded + v_is.failed,
      to_char(v_is.window_began_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'));
  END IF;
  RETURN v_is;
END
$$;
