-- Returns what is wrong now, as far as SQL can see it: [alerts](alerts.md#what-is-reported) lists kinds and thresholds.
--
-- One cause is reported once. While no worker is alive (`workers_down`), no topic is reported as `no_worker` or
-- `backlog`; while the breaker of a topic is open (`breaker`), that topic is not reported as one of these or as
-- `dead_rate`; and a topic that is reported as `no_worker` is not also reported as `backlog`. `no_worker` uses the rule
-- of `messages.unhandled_topics`, and has the same limit. To see the transactions of other users, its owner needs
-- `pg_read_all_stats`, which `pgrouse migrate` grants if it has the right to; without it, `snapshot_held` sees only
-- those of its own user.
--
-- Result: one row per kind and topic; `topic` NULL = the condition is not about a topic. `since`: when the condition
-- began; if that time is unknown, when `update_conditions` first saw it. `what` and `fix` are texts for people.
-- Errors: none.
-- Locks: none.
-- Cost: it reads topics and their priorities, not all messages; counts of dead messages stop at their bound. It checks
-- what waits (`no_worker`, `backlog`) in at most `p_limit` topics after `p_after`, and returns for the other topics
-- what the last ticks found.
-- Called by: update_conditions, `pgrouse alert conditions`, the doctor.
-- Inside: `what` has times, not ages: it stays the same while nothing changes.
CREATE OR REPLACE FUNCTION messages.conditions(p_after text DEFAULT '', p_limit integer DEFAULT 2000)
RETURNS TABLE (kind text, topic text, since timestamptz, what text, fix text)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_now   timestamptz := messages.now();
  v_threshold messages.alert_threshold := (SELECT b FROM messages.alert_threshold AS b WHERE b.topic = '*');
  v_time  CONSTANT text := 'YYYY-MM-DD HH24:MI:SS "UTC"';
  v_ready timestamptz;
  v_policy messages.policy;
  v_own   messages.alert_threshold;
  v_topics text[] := messages.waiting_topics(p_after, p_limit);
  v_topic text;
  v_down  boolean;
BEGIN
  RETURN QUERY
  SELECT 'workers_down', NULL::text, d.since, d.what, d.fix FROM messages.workers_down() AS d;
  v_down := EXISTS (SELECT FROM messages.explained_conditions() AS e WHERE e.topic IS NULL);

  RETURN QUERY
  SELECT 'listener_degraded', NULL::text,
         coalesce(
           (
             SELECT c.since FROM messages.condition AS c
             WHERE c.kind = 'listener_degraded' AND c.ended_at IS NULL), v_now),
         format('workers that get no notifications: %s', string_agg(w.name, ', ' ORDER BY w.name)),
         'set database.listen_dsn to a direct connection; until then messages are found by polling'
  FROM messages.worker_state AS w
  WHERE w.alive AND w.listener = 'degraded' AND v_threshold.listener_for > '0'
  HAVING count(*) > 0;

  RETURN QUERY
  SELECT 'cron_late', NULL::text, k.silent + v_threshold.cron_age,
         format('pg_cron has not ticked since %s', to_char(k.ran_at AT TIME ZONE 'UTC', v_time)),
         'run `pgrouse cron check`: it says what is wrong with the jobs; if pg_cron is not to be used any more, '
         '`pgrouse cron remove`'
  FROM (
    -- The time of the server's start is the earliest: it may have been down before.
    SELECT max(k.ran_at) AS ran_at, greatest(max(k.ran_at), pg_postmaster_start_time()) AS silent
    FROM messages.tick_mark AS k WHERE k.caller = 'cron') AS k
  WHERE k.ran_at IS NOT NULL AND v_threshold.cron_age > '0' AND k.silent < v_now - v_threshold.cron_age;

  FOREACH v_topic IN ARRAY v_topics LOOP
    v_own := (SELECT b FROM messages.alert_threshold AS b WHERE b.topic = v_topic);
    -- Dead letters wait for an operator: only a threshold of their own makes that wrong.
    IF right(v_topic, 4) <> '.dlq' THEN
      v_own.backlog_age := coalesce(v_own.backlog_age, v_threshold.backlog_age);
      v_own.no_worker_for := coalesce(v_own.no_worker_for, v_threshold.no_worker_for);
    END IF;
    v_ready := CASE WHEN greatest(v_own.backlog_age, v_own.no_worker_for) > '0' THEN messages.oldest_ready(v_topic) END;
    IF v_ready < v_now - least(nullif(v_own.backlog_age, '0'), nullif(v_own.no_worker_for, '0')) THEN
      v_policy := messages.claim_policy(v_topic, v_now);
      CASE
        -- A pause, or a breaker, is no backlog: the one who stopped the topic knows; the breaker has an alert of its
        -- own, also while it probes. It is what topic_state calls stopped, for a fraction of its cost.
        WHEN v_policy.stopped_until IS NOT NULL OR v_policy.probes IS NOT NULL THEN
        -- One cause is reported once: a topic without a worker has no backlog as well.
        WHEN v_own.no_worker_for > '0' AND v_ready < v_now - v_own.no_worker_for
          AND NOT messages.is_handled(v_topic) THEN
          RETURN QUERY SELECT 'no_worker', v_topic, v_ready + v_own.no_worker_for,
            format('messages of %s are ready, and no worker handles the topic', v_topic),
            format('start a daemon whose configuration has a handler for %s, or pause the topic', v_topic)
          WHERE NOT v_down;
        WHEN v_own.backlog_age > '0' AND v_ready < v_now - v_own.backlog_age THEN
          RETURN QUERY SELECT 'backlog', v_topic, v_ready + v_own.backlog_age,
            format(
              'messages of %s have been ready for more than %s', v_topic, messages.format_interval(v_own.backlog_age)),
            format(
              'add workers or concurrency, or see what delays them: `pgrouse topic show %s`, `pgrouse explain ID`',
              v_topic)
          WHERE NOT v_down;
        ELSE
      END CASE;
    END IF;
  END LOOP;

  RETURN QUERY
  SELECT c.kind, c.topic, c.since, c.what, c.fix
  FROM messages.condition AS c
  WHERE c.ended_at IS NULL AND c.kind IN ('backlog', 'no_worker') AND NOT v_down
    AND (
      c.topic <= p_after COLLATE "C"
        OR cardinality(v_topics) >= p_limit AND c.topic > v_topics[cardinality(v_topics)] COLLATE "C");

  RETURN QUERY
  SELECT 'breaker', b.topic, b.since, b.what, b.fix FROM messages.open_breakers() AS b;

  RETURN QUERY
  SELECT 'snapshot_held', NULL::text, min(h.began_at) + v_threshold.snapshot_age,
         format('%s has been open since %s: rows that were settled since cannot be cleaned up',
           (array_agg(h.who ORDER BY h.began_at))[1], to_char(min(h.began_at) AT TIME ZONE 'UTC', v_time)),
         (array_agg(h.fix ORDER BY h.began_at))[1]
  FROM (
    SELECT a.xact_start AS began_at,
           format(
             'a transaction of %s (%s, process %s)', a.usename, coalesce(nullif(a.application_name, ''), 'no name'),
             a.pid
           ) AS who,
           format(
             'end it: SELECT pg_terminate_backend(%s), and set idle_in_transaction_session_timeout for its user', a.pid
           ) AS fix
    FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
      AND num_nonnulls(a.backend_xmin, a.backend_xid) > 0
    UNION ALL
    SELECT p.prepared, format('the prepared transaction "%s" of %s', p.gid, p.owner),
           format('end it: ROLLBACK PREPARED %L, or COMMIT PREPARED', p.gid)
    FROM pg_prepared_xacts AS p
    WHERE p.database = current_database()) AS h
  WHERE v_threshold.snapshot_age > '0' AND h.began_at < clock_timestamp() - v_threshold.snapshot_age
  HAVING count(*) > 0;

  RETURN QUERY
  SELECT 'dead_rate', d.topic,
         coalesce(
           (
             SELECT c.since FROM messages.condition AS c
             WHERE c.kind = 'dead_rate' AND c.topic = d.topic AND c.ended_at IS NULL), v_now),
         format(
           'more than %s message%s of %s died in an hour', d.threshold,
           CASE WHEN d.threshold <> 1 THEN 's' END, d.topic),
         format(
           'see why: `pgrouse dead group --topic %s`; fix the cause, then `pgrouse redrive --topic %s`', d.topic,
           d.topic)
  -- Redriven and silenced messages do not count.
  FROM messages.dead_rates() AS d
  WHERE d.topic NOT IN (
    SELECT s.topic FROM unnest(ARRAY(
      SELECT e.topic FROM messages.explained_conditions() AS e WHERE e.kind = 'dead_rate')) AS s (topic))
    AND EXISTS (
    SELECT FROM messages.message_archive AS a
    WHERE a.result NOT IN ('success', 'cancelled') AND a.topic = d.topic COLLATE "C"
      AND a.archived_at > v_now - interval '1 hour'
      AND (SELECT true FROM messages.redrive_log AS r WHERE r.archived_id = a.id LIMIT 1) IS NULL
      AND (
        SELECT true FROM messages.silence AS s
        WHERE s.ended_at IS NULL AND s.until > v_now AND messages.matches_glob(s.kind, 'dead_message')
          AND messages.matches_glob(s.topic, a.topic)
          AND (s.error_fingerprint IS NULL OR s.error_fingerprint = a.error_fingerprint)
        LIMIT 1) IS NULL
    OFFSET d.threshold);

  RETURN QUERY
  SELECT 'alerts_undelivered', NULL::text, min(u.since),
         string_agg(u.what, '; ' ORDER BY u.name),
         'see `pgrouse alert sinks`; `pgrouse alert test NAME` says what a sink answers; '
         '`pgrouse alert forget NAME` drops one that is not used any more'
  FROM (
    SELECT s.name, s.failing_since + v_threshold.undelivered_for AS since,
           format('sink %s has failed since %s', s.name, to_char(s.failing_since AT TIME ZONE 'UTC', v_time)) AS what
    FROM messages.alert_sink AS s
    WHERE s.failing_since < v_now - v_threshold.undelivered_for
    UNION ALL
    SELECT s.name, s.seen_at + v_threshold.undelivered_for,
           format('no process has delivered to sink %s since %s', s.name, to_char(s.seen_at AT TIME ZONE 'UTC', v_time))
    FROM messages.alert_sink AS s
    WHERE s.seen_at < v_now - v_threshold.undelivered_for AND s.failing_since IS NULL
      -- EXISTS is not used: PostgreSQL 18 would read both tables whole once.
      AND ((SELECT true FROM messages.alert_delivery AS d
        WHERE d.sink = s.name AND d.delivered_at IS NULL AND d.abandoned_at IS NULL LIMIT 1)
        OR (SELECT true FROM messages.alert_incident AS i WHERE i.sink = s.name AND i.due_at IS NOT NULL LIMIT 1)
        OR EXISTS (SELECT FROM messages.alert AS a
          WHERE a.xid >= pg_snapshot_xmin(s.position) AND NOT pg_visible_in_snapshot(a.xid, s.position)
          AND a.kind <> 'alerts_undelivered'))
  ) AS u
  WHERE v_threshold.undelivered_for > '0'
  HAVING count(*) > 0;
END
$$;
