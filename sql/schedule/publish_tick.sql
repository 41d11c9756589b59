-- Publish the message of one tick of a schedule. Its headers name the schedule and the tick (ISO 8601, UTC).
-- Called by: fire_schedule, run_schedule. Locks: as publish. Result: as publish; outcome = published if a message was
-- made. The jitter is computed from the schedule's name and the tick, so that every daemon gets the same time. With a
-- key at most one message of the schedule waits: while it does, a tick publishes nothing.
CREATE OR REPLACE FUNCTION messages.publish_tick(
  p_schedule messages.schedule, p_tick timestamptz, p_now timestamptz, OUT id bigint, OUT outcome text
)
LANGUAGE sql
AS $$
  SELECT p.id, CASE p.outcome WHEN 'inserted' THEN 'published' ELSE p.outcome END
  FROM messages.publish(
    p_topic => p_schedule.topic,
    p_payload => p_schedule.payload,
    p_key => p_schedule.key,
    p_on_conflict => CASE WHEN p_schedule.key IS NULL THEN 'error' ELSE 'ignore' END,
    p_headers => coalesce(p_schedule.headers, '{}') || jsonb_build_object(
      'schedule', p_schedule.name, 'tick', to_char(p_tick AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')),
    p_channel => p_schedule.channel,
    p_priority => p_schedule.priority,
    p_max_attempts => p_schedule.max_attempts,
    p_timeout => p_schedule.timeout,
    p_backoff => p_schedule.backoff,
    p_retention => p_schedule.retention,
    p_available_at => greatest(
      p_now,
      p_tick + p_schedule.jitter * (
        (
          hashtextextended(p_schedule.name || ' ' || extract(epoch FROM p_tick)::text, 0) & 65535
        ) / 65536.0::double precision))
  ) AS p
$$;
