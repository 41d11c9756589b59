-- Check a schedule when it is written and compute its next tick. NOTIFY schedule_changed tells the daemons if a tick
-- comes earlier than they know; a daemon that misses it finds the schedule with its next maintenance. next_tick is
-- computed for a new schedule, for a changed expression or time zone, and after a pause. It may also be set by hand: to
-- a past tick, to make up for the ticks since then. Locks: nothing; PostgreSQL takes its notify lock at commit.
CREATE OR REPLACE FUNCTION messages.check_schedule()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_problem text;
  v_hint    text;
BEGIN
  SELECT format(k.problem, coalesce(k.value, 'NULL')), k.hint INTO v_problem, v_hint
  FROM (VALUES
    ('"%s" is no name of a schedule', NEW.name,
     NEW.name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]*$' AND octet_length(NEW.name) <= 100,
     'use 1 to 100 of A-Z a-z 0-9 . _ : - with a letter or digit first'),
    ('topic of schedule ' || NEW.name || ' is "%s"', NEW.topic,
     NEW.topic ~ '^[A-Za-z0-9][A-Za-z0-9._:-]*$' AND octet_length(NEW.topic) <= 200,
     'use 1 to 200 of A-Z a-z 0-9 . _ : - with a letter or digit first'),
    ('topic of schedule ' || NEW.name || ' is "%s"', NEW.topic, NEW.topic NOT LIKE '%.dlq',
     'use a name that does not end with .dlq: those are dead letters'),
    ('channel of schedule ' || NEW.name || ' is "%s"', NEW.channel,
     coalesce(messages.is_printable(NEW.channel) AND length(NEW.channel) BETWEEN 1 AND 200, true),
     'use 1 to 200 printable characters, or NULL for none'),
    ('key of schedule ' || NEW.name || ' is "%s"', NEW.key,
     coalesce(messages.is_printable(NEW.key) AND length(NEW.key) BETWEEN 1 AND 200, true),
     'use 1 to 200 printable characters, or NULL for none'),
    ('priority of schedule ' || NEW.name || ' is %s', NEW.priority::text, NEW.priority BETWEEN 0 AND 9,
     'use 0 (first) to 9'),
    ('max_attempts of schedule ' || NEW.name || ' is %s', NEW.max_attempts::text, coalesce(NEW.max_attempts >= 0, true),
     'use 0 (no limit) or more, or NULL for what the topic says'),
    ('payload of schedule ' || NEW.name || ' is %s', 'larger than 16 MiB',
     messages.jsonb_text_bytes(NEW.payload) <= 16777216, 'store it elsewhere and publish where it is'),
    ('headers of schedule ' || NEW.name || ' are %s', left(messages.display_json(NEW.headers), 100),
     coalesce(jsonb_typeof(NEW.headers) = 'object' AND messages.jsonb_text_bytes(NEW.headers) <= 65000, true),
     'use an object of up to 64 kB'),
    ('jitter of schedule ' || NEW.name || ' is %s', NEW.jitter::text, NEW.jitter BETWEEN '0' AND '1 day',
     'use an interval from 0 to 1 day'),
    ('missed of schedule ' || NEW.name || ' is "%s"', NEW.missed, NEW.missed IN ('skip', 'once', 'all'),
     'use skip, once or all'),
    ('missed_limit of schedule ' || NEW.name || ' is %s', NEW.missed_limit::text, NEW.missed_limit BETWEEN 1 AND 1000,
     'use 1 to 1000'),
    ('while_paused of schedule ' || NEW.name || ' is "%s"', NEW.while_paused, NEW.while_paused IN ('publish', 'skip'),
     'use publish or skip')
  ) AS k (problem, value, good, hint)
  WHERE k.good IS NOT TRUE
  LIMIT 1;
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION '%', v_problem USING ERRCODE = '22023', HINT = v_hint;
  END IF;
  PERFORM messages.check_own_policy(NEW.timeout, NEW.backoff, NEW.retention, 'schedule ' || NEW.name);

  IF TG_OP = 'INSERT' OR (NEW.cron, NEW.time_zone) IS DISTINCT FROM (OLD.cron, OLD.time_zone) THEN
    SELECT c.problem, c.hint INTO v_problem, v_hint FROM messages.check_cron(NEW.cron) AS c;
    IF v_problem IS NOT NULL THEN
      RAISE EXCEPTION 'cron of schedule %: %', NEW.name, v_problem USING ERRCODE = '22023', HINT = v_hint;
    END IF;
    SELECT z.problem, z.hint INTO v_problem, v_hint FROM messages.check_time_zone(NEW.time_zone) AS z;
    IF v_problem IS NOT NULL THEN
      RAISE EXCEPTION 'time_zone of schedule % %', NEW.name, v_problem USING ERRCODE = '22023', HINT = v_hint;
    END IF;
  END IF;

  IF TG_OP = 'INSERT' OR (NEW.cron, NEW.time_zone) IS DISTINCT FROM (OLD.cron, OLD.time_zone)
     OR (NEW.paused_at IS NULL AND OLD.paused_at IS NOT NULL) THEN
    NEW.next_tick := messages.next_tick(NEW.cron, NEW.time_zone, messages.now());
  END IF;
  -- The change may well have fixed it.
  NEW.retry_at := NULL;
  NEW.failures := 0;
  RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION messages.schedule_changed()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  PERFORM messages.notify('schedule_changed', ARRAY['']);
  RETURN NULL;
END
$$;

-- The trigger does not run for what fire_schedule itself writes.
CREATE OR REPLACE TRIGGER check_schedule
BEFORE INSERT OR UPDATE OF name, cron, time_zone, topic, channel, key, priority, max_attempts, timeout, backoff,
  retention, payload, headers, jitter, missed, missed_limit, while_paused, paused_at
ON messages.schedule
FOR EACH ROW EXECUTE FUNCTION messages.check_schedule();

CREATE OR REPLACE TRIGGER schedule_changed
AFTER INSERT ON messages.schedule
FOR EACH ROW EXECUTE FUNCTION messages.schedule_changed();

CREATE OR REPLACE TRIGGER schedule_moved
AFTER UPDATE ON messages.schedule
FOR EACH ROW
WHEN (NEW.paused_at IS NULL
  AND (
    OLD.paused_at IS NOT NULL OR NEW.next_tick < OLD.next_tick
      OR (OLD.retry_at IS NOT NULL AND NEW.retry_at IS NULL AND NEW.next_tick = OLD.next_tick)))
EXECUTE FUNCTION messages.schedule_changed();

-- Find the problem of a cron expression, and how to fix it.
-- Called by: the trigger of messages.schedule. Locks: nothing. Result: problem NULL = it is valid, and has a tick in
-- the future.
CREATE OR REPLACE FUNCTION messages.check_cron(p_cron text, OUT problem text, OUT hint text)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_cron record := messages.parse_cron(p_cron);
BEGIN
  problem := v_cron.problem;
  hint := v_cron.hint;
  IF problem IS NULL AND messages.next_tick(p_cron, 'UTC', messages.now()) IS NULL THEN
    problem := format('expression is "%s", a day that never comes', p_cron);
    hint := 'use a day that the month has, or L for the last one';
  END IF;
END
$$;
