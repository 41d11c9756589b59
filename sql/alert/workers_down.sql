-- Find out whether too few workers are alive: fewer than min_workers of messages.alert_threshold (0 = never too few).
-- Called by: conditions, open_conditions, examine_workers. Locks: nothing. Result: one row if it is so, else none.
-- What is alive is what messages.worker_state says, also a worker that stops: it still settles its messages.
-- With a min_workers of 1, the default, none is missed while none has died and nothing waits: a queue that never had a
-- worker, and one whose workers were stopped in order, are well until messages of a topic have been ready for a minute.
-- A worker that died is missed until another lives, or until it is unregistered (prune keeps it).
-- In the first 30 s of the server it is not known who lives: they may be about to connect again.
-- Cost: the registry. Only while no worker lives and none has died, also entries of an index for up to 100 topics.
CREATE OR REPLACE FUNCTION messages.workers_down()
RETURNS TABLE (since timestamptz, what text, fix text)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_least   integer := (SELECT b.min_workers FROM messages.alert_threshold AS b WHERE b.topic = '*');
  v_alive   bigint;
  v_silent  bigint;
  v_seen_at timestamptz;
  v_names   text;
  v_waits   record;
BEGIN
  SELECT count(*) FILTER (WHERE w.alive), count(*) FILTER (WHERE w.state = 'silent'),
         max(w.seen_at) FILTER (WHERE w.state = 'silent')
  INTO v_alive, v_silent, v_seen_at
  FROM messages.worker_state AS w;
  IF v_alive >= v_least OR pg_postmaster_start_time() > messages.now() - interval '30 s' THEN
    RETURN;
  END IF;

  IF v_silent = 0 AND v_least = 1 THEN
    SELECT w.* INTO v_waits FROM messages.first_unhandled() AS w;
    IF NOT FOUND THEN
      RETURN;
    END IF;
    RETURN QUERY SELECT v_waits.since, format('no worker is alive, and messages of %s are ready', v_waits.topic),
                        'start one: `pgrouse run`';
    RETURN;
  END IF;

  -- Those that were seen last are the ones that are missed; older ones may have been replaced long ago.
  SELECT string_agg(format('%s was last seen at %s', s.name,
           to_char(s.seen_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')), ', ' ORDER BY s.seen_at DESC, s.name)
  INTO v_names
  FROM (
    SELECT w.name, w.seen_at FROM messages.worker_state AS w
    WHERE w.state = 'silent' ORDER BY w.seen_at DESC, w.name LIMIT 5) AS s;
  RETURN QUERY SELECT
    coalesce(
      (SELECT c.since FROM messages.condition AS c WHERE c.kind = 'workers_down' AND c.ended_at IS NULL),
      v_seen_at, messages.now()),
    concat_ws(
      ': ',
      CASE
        WHEN v_alive > 0 THEN format('only %s of at least %s workers are alive', v_alive, v_least)
        WHEN v_least > 1 THEN format('no worker is alive, of at least %s', v_least)
        ELSE 'no worker is alive'
      END,
      v_names || CASE WHEN v_silent > 5 THEN format(', and %s more are silent', v_silent - 5) ELSE '' END),
    'see the logs of the workers, and start them again: `pgrouse run`'
    || CASE WHEN v_silent > 0
      THEN '; if one will not come back: `SELECT messages.unregister_worker(NAME)`' ELSE '' END;
END
$$;

-- Find a topic that no worker handles although its messages have been ready for a minute, or for its no_worker_for if
-- that is less. Topics that are stopped, those with a no_worker_for of 0, and dead letters do not count.
-- Called by: workers_down. Locks: nothing. Result: the first such topic and since when it is so, or no row.
CREATE OR REPLACE FUNCTION messages.first_unhandled(OUT topic text, OUT since timestamptz)
RETURNS SETOF record
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_policy messages.policy;
  v_wait   interval;
BEGIN
  FOREACH topic IN ARRAY messages.waiting_topics('', 100) LOOP
    CONTINUE WHEN right(topic, 4) = '.dlq';
    v_wait := coalesce(
      (SELECT b.no_worker_for FROM messages.alert_threshold AS b WHERE b.topic = first_unhandled.topic),
      (SELECT b.no_worker_for FROM messages.alert_threshold AS b WHERE b.topic = '*'));
    CONTINUE WHEN v_wait = '0';
    since := messages.oldest_ready(topic) + least(v_wait, '1 minute');
    CONTINUE WHEN since IS NULL OR since > v_now;
    v_policy := messages.claim_policy(topic, v_now);
    IF v_policy.stopped_until IS NULL AND v_policy.probes IS NULL AND NOT messages.is_handled(topic) THEN
      RETURN NEXT;
      RETURN;
    END IF;
  END LOOP;
END
$$;
