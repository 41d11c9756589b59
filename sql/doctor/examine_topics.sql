-- Reports what is paused on purpose, locks that are shorter than the work that they guard, and more topics than a tick
-- visits. Pauses have the level `ok`, since they are intended.
--
-- Result: for each code what is wrong with it, by topic, or one row with level `ok`. The codes are `paused`,
-- `short_locks`, `many_topics`.
-- Errors: none.
-- Locks: none.
-- Cost: the policies, the measures of an hour, 2000 topics.
-- Called by: doctor, `pgrouse doctor`.
CREATE OR REPLACE FUNCTION messages.examine_topics()
RETURNS TABLE (code text, level text, what text, fix text)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN QUERY
  WITH found (code, level, what, fix) AS (
    SELECT 'paused', 'ok',
           format('%s has been paused since %s%s%s', CASE s.topic WHEN '*' THEN 'every topic' ELSE s.topic END,
             s.paused_at::timestamptz(0),
             ' by ' || s.paused_by, coalesce(': ' || s.paused_reason, '')),
           format('SELECT messages.resume(%L);', s.topic)
    FROM messages.topic_state() AS s
    WHERE s.paused_topic = s.topic
    UNION ALL
    SELECT 'paused', 'ok',
           format(
             'the channel %s of %s has been paused since %s%s', c.channel, c.topic, c.paused_at::timestamptz(0),
             ' by ' || c.paused_by),
           format('SELECT messages.resume(%L, %L);', c.topic, c.channel)
    FROM messages.channel_state AS c
    WHERE c.paused
    UNION ALL
    SELECT 'paused', 'ok',
           format(
             'the schedule %s has been paused since %s%s', s.name, s.paused_at::timestamptz(0), ' by ' || s.paused_by),
           format('SELECT messages.resume_schedule(%L);', s.name)
    FROM messages.schedule AS s
    WHERE s.paused_at IS NOT NULL
    UNION ALL
    SELECT 'short_locks', 'warn',
           format('of %s one run in a hundred takes %s s or more, and its lock lasts %s s: '
             'a worker that is frozen for that long loses it', l.topic,
             round(l.run_p99_s::numeric, 1), extract(epoch FROM p.lock_duration)::float8),
           format('pgrouse topic set %s lock_duration=%ss', l.topic, ceil(2 * l.run_p99_s))
    FROM messages.latency('1 hour') AS l
    LEFT JOIN messages.topic AS own ON own.topic = l.topic
    JOIN messages.inherited_policy AS d ON d.topic = messages.inherits_from(l.topic)
    CROSS JOIN LATERAL (SELECT coalesce(own.lock_duration, d.lock_duration) AS lock_duration) AS p
    WHERE l.runs >= 20 AND make_interval(secs => l.run_p99_s) > p.lock_duration
    UNION ALL
    SELECT 'many_topics', 'warn',
           'messages of more than 2000 topics wait: one tick looks at 2000 of them, '
           'so alerts about a topic come later; pages and metrics show the 1000 that matter most',
           'use channels or keys for what is not a kind of message of its own; '
           'what a program published by mistake is deleted by `pgrouse topic purge TOPIC`: '
             'SELECT * FROM messages.unhandled_topics();'
    WHERE cardinality(messages.waiting_topics('', 2001)) > 2000
  )
  (SELECT f.* FROM found AS f LIMIT 100)
  UNION ALL
  SELECT c.code, 'ok', c.said, NULL
  FROM (VALUES
    ('paused', 'nothing is paused'),
    ('short_locks', 'each lock outlasts the runs of its topic'),
    ('many_topics', 'each tick looks at all topics')) AS c (code, said)
  WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.code = c.code);
END
$$;
