-- Publishes one message, and chooses what happens if a waiting message already has its key. The arguments are the
-- columns of [an INSERT](#publishing); `p_delay` counts from now, `p_ttl` from when the message is available.
-- `p_on_conflict` is for a key that a message of this topic has which is ready or delayed and was never attempted; `id`
-- is then the id of that message:
--
-- - `error`: 23505.
-- - `replace`: that message gets the new payload or body, headers and TTL, and loses its state and steps, which are
--   about the old one; its id, place, priority, channel and time do not change, but a wait for an event ends. The
--   TTL counts from that time, or from now if it has passed. The outcome is `replaced`.
-- - `ignore`: nothing happens. The outcome is `ignored`.
-- - `append`: its payload becomes one array with the new payload at its end; if the new payload is an array, its
--   elements are added. Headers are added, the TTL is the new one, as with `replace`. The payload of a message
--   published with `append` is an array from the start. The outcome is `appended`.
--
-- A message that is running or was attempted is never changed: the new message is published in addition, as if there
-- were no conflict.
--
-- `p_after` contains the ids of up to 100,000 messages: the new message is not claimed before all of them have ended as
-- `success`. It is in `messages.message` from the start, as `blocked`, with `available_at` in the year 9000 and a row
-- of `messages.blocked_message`; `p_delay`, `p_available_at` and the TTL count from its release, which is part of the
-- transaction that ends the last of them. A message that has already succeeded does not delay the new one; the id of a
-- redriven message refers to the message that replaced it. `p_after_failed` is for those that die or are cancelled:
--
-- - `hold`: it keeps waiting, for the redrive of the dead message, for `messages.unblock`, or for its own cancellation.
-- - `cancel`: it ends as `cancelled`, and this end is passed on to the messages that come after it.
-- - `run`: the message that died or was cancelled counts as done.
--
-- `p_after` can be combined only with `error` and `ignore`, and not with a topic that has subscribers. Cycles are
-- impossible: an id is known only once its message exists.
--
-- With `p_debounce`, the message is available after that time, and each further publish with `p_debounce` of its key
-- makes it wait for that time again, but at most until `p_max_delay` (NULL = without end) after the first publish; its
-- time is never moved earlier. Then `error` means `replace`: one message comes, with the newest payload, when the
-- publishes have stopped. `append` gathers all payloads. A message that was published without it keeps its time. It
-- takes the place of `p_delay` and `p_available_at`, and cannot be combined with `ignore` and `p_after`.
--
-- With `p_throttle`, `error` means `ignore`, and the message is also ignored if the last message of its key that was
-- published with it waits (also for a retry) or started less than that time ago; `id` is then the id of that message.
-- So messages of the key start at least that far apart, however long they wait. It cannot be combined with
-- `p_debounce`, `replace` and `append`. In a topic with subscribers, and if the archive does not have the message
-- (`archive_success`), the time counts from the publish.
--
-- `p_timeout`, `p_backoff` and `p_retention` are for this message what the settings of the same names are for its
-- topic, and take precedence over them. A redrive, a replay, a copy for a subscriber and a dead letter have them too. A
-- message that is replaced, or appended to, keeps its own.
--
-- With `p_batch_id`, the message counts in that batch (`messages.create_batch`) if the outcome is `inserted`; a message
-- that waits with the key stays where it counts. Copies for subscribers count there too.
--
-- With `p_expect_result`, the role that logged in may learn how the message ends, by `messages.wait_for_many`: within a
-- day of the publish, and as long as it goes on waiting. It may not if the outcome is `ignored` or `held`: then the
-- message is another one. Nor may it with `appended`, unless the role could learn the end of the message before: the
-- rest of the payload may be another role's. If another role replaces the payload or appends to it, the role that
-- expected the result may not learn it any more.
--
-- Result: the id, and the outcome: `inserted`, `replaced`, `ignored`, `appended`; `held`: the topic has a `key_ttl`,
-- and the message `id` holds the key: it is running, waits to be retried, or was completed recently; `dropped`: the
-- topic is full and its `on_full` is `drop`, `id` is NULL.
-- Errors: those of [an INSERT](#publishing), 23505 only with `error`; a message that is ignored is refused too if its
-- topic accepts no publishes or it is too large. 22023 for an invalid argument, and for `append` to a message with a
-- body; PGR08 if `p_after` has an id of which there is no message, live or archived.
-- Locks: the message that it changes, the row of `messages.throttled_key` of a key that it throttles, the batch, which
-- others may publish into, and whatever an INSERT locks. Concurrent calls with one key wait for each other, and a call
-- waits for a claim or a cancel that has not committed.
-- Called by: publishers.
CREATE OR REPLACE FUNCTION messages.publish(
  p_topic        text,
  p_payload      jsonb       DEFAULT NULL,
  p_key          text        DEFAULT NULL,
  p_on_conflict  text        DEFAULT 'error',
  p_body         bytea       DEFAULT NULL,
  p_headers      jsonb       DEFAULT NULL,
  p_channel      text        DEFAULT NULL,
  p_priority     integer     DEFAULT 5,
  p_delay        interval    DEFAULT NULL,
  p_available_at timestamptz DEFAULT NULL,
  p_ttl          interval    DEFAULT NULL,
  p_max_attempts integer     DEFAULT NULL,
  p_after        bigint[]    DEFAULT NULL,
  p_after_failed text        DEFAULT 'hold',
  p_expect_result boolean    DEFAULT false,
  p_debounce     interval    DEFAULT NULL,
  p_max_delay    interval    DEFAULT NULL,
  p_throttle     interval    DEFAULT NULL,
  p_timeout      interval    DEFAULT NULL,
  p_backoff      jsonb       DEFAULT NULL,
  p_retention    interval    DEFAULT NULL,
  p_batch_id     bigint      DEFAULT NULL,
  OUT id         bigint,
  OUT outcome    text
)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_new     messages.message;
  v_before  bigint[];
  v_failed_results    text[];
  v_problem text := CASE
    WHEN p_topic IS NULL THEN 'topic is missing'
    WHEN num_nonnulls(p_payload, p_body) <> 1 THEN 'a message has a payload or a body: give one of them'
    WHEN p_on_conflict IS NULL OR p_on_conflict NOT IN ('error', 'replace', 'ignore', 'append') THEN
      format('on_conflict is %s: use error, replace, ignore or append', coalesce('"' || p_on_conflict || '"', 'NULL'))
    WHEN p_on_conflict <> 'error' AND p_key IS NULL
      THEN format('on_conflict is %s and there is no key: give one', p_on_conflict)
    WHEN p_on_conflict = 'append' AND p_body IS NOT NULL
      THEN 'on_conflict is append and there is a body: only payloads can be gathered'
    WHEN num_nonnulls(p_delay, p_available_at) = 2 THEN 'delay and available_at were both given: use one of them'
    WHEN p_delay NOT BETWEEN '0' AND '36500 days'
      THEN format('delay is %s: use an interval from 0 to 36500 days', p_delay)
    WHEN p_ttl NOT BETWEEN '0' AND '36500 days' THEN format('ttl is %s: use an interval from 0 to 36500 days', p_ttl)
    WHEN p_after_failed IS NULL OR p_after_failed NOT IN ('hold', 'cancel', 'run') THEN
      format('after_failed is %s: use hold, cancel or run', coalesce('"' || p_after_failed || '"', 'NULL'))
    WHEN cardinality(p_after) > 0 AND p_on_conflict IN ('replace', 'append') THEN
      format(
        'after was given and on_conflict is %s: what waits under the key keeps its place; use error or ignore',
        p_on_conflict)
    WHEN cardinality(p_after) > 0 AND EXISTS (
      SELECT FROM messages.subscription AS s WHERE s.topic = ANY (messages.names_of(p_topic))) THEN
      format(
        'after was given and topic %s has subscribers: what is fanned out cannot wait; publish to their topics', p_topic
      )
    WHEN num_nonnulls(p_debounce, p_max_delay, p_throttle) > 0 THEN messages.debounce_problem(
      p_key, p_on_conflict, p_delay, p_available_at, p_after, p_debounce, p_max_delay, p_throttle)
  END;
BEGIN
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION 'publish: %', v_problem USING ERRCODE = '22023';
  END IF;
  IF num_nonnulls(p_debounce, p_throttle) > 0 AND p_on_conflict = 'error' THEN
    p_on_conflict := CASE WHEN p_debounce IS NULL THEN 'ignore' ELSE 'replace' END;
  END IF;
  -- Before the clock is read: a message must not seem older than its transaction, or claims look for it too late.
  PERFORM pg_current_xact_id();
  v_new.topic := p_topic;
  v_new.channel := p_channel;
  v_new.key := p_key;
  v_new.priority := coalesce(p_priority, 5);
  v_new.payload := CASE WHEN p_on_conflict = 'append' THEN messages.jsonb_to_array(p_payload) ELSE p_payload END;
  v_new.body := p_body;
  v_new.headers := p_headers;
  v_new.available_at := coalesce(p_available_at, clock_timestamp() + coalesce(p_debounce, p_delay, '0'));
  IF p_debounce IS NOT NULL THEN
    v_new.debounce_limit := coalesce(clock_timestamp() + p_max_delay, '9000-01-01 00:00+00');
  END IF;
  v_new.expires_at := greatest(v_new.available_at, clock_timestamp()) + p_ttl;
  v_new.max_attempts := p_max_attempts;
  IF num_nonnulls(p_timeout, p_backoff, p_retention) > 0 THEN
    PERFORM messages.check_own_policy(p_timeout, p_backoff, p_retention);
    v_new.timeout := p_timeout;
    v_new.backoff := p_backoff;
    v_new.retention := p_retention;
  END IF;
  v_new.batch_id := p_batch_id;
  IF p_batch_id IS NOT NULL THEN
    PERFORM messages.check_batches(ARRAY[p_batch_id]);
  END IF;
  IF cardinality(p_after) > 0 THEN
    SELECT array_agg(b.id), array_agg(b.failed_result) INTO v_before, v_failed_results
    FROM messages.open_predecessors(p_after) AS b WHERE b.failed_result IS NULL OR p_after_failed <> 'run';
    IF v_before IS NOT NULL THEN
      -- The end of the domain: no claim reads over it.
      v_new.available_at := '9000-01-01 00:00+00';
      v_new.expires_at := NULL;
    END IF;
  END IF;
  IF p_throttle IS NOT NULL THEN
    v_new.id := nextval('messages.message_id_seq');
    publish.id := messages.throttle_key(p_topic, p_key, v_new.id, p_throttle);
    IF publish.id IS NOT NULL THEN
      publish.outcome := 'ignored';
      PERFORM messages.check_ignored(p_topic, p_payload, p_body);
      RETURN;
    END IF;
  END IF;

  IF NOT messages.may_have_policy(p_topic) THEN
    SELECT u.id, u.outcome INTO publish.id, publish.outcome FROM messages.insert_or_merge(v_new, p_on_conflict) AS u;
  ELSE
    -- The copies for subscribers do the same with their keys; they are made by a trigger.
    PERFORM set_config('messages.on_conflict', p_on_conflict, true);
    SELECT p.id, p.outcome INTO publish.id, publish.outcome FROM messages.publish_with_key(v_new, p_on_conflict) AS p;
    PERFORM set_config('messages.on_conflict', '', true);
  END IF;
  IF publish.outcome IN ('ignored', 'held') THEN
    PERFORM messages.check_ignored(p_topic, p_payload, p_body);
  END IF;
  IF p_throttle IS NOT NULL AND publish.id IS DISTINCT FROM v_new.id THEN
    PERFORM messages.throttle_by_other(p_topic, p_key, publish.id);
  END IF;
  IF p_expect_result AND publish.outcome IN ('inserted', 'replaced') THEN
    INSERT INTO messages.expected_result AS x (message_id, role, until)
    VALUES (publish.id, session_user, messages.now() + interval '1 day')
    ON CONFLICT (message_id, role) DO UPDATE SET until = greatest(x.until, excluded.until);
  ELSIF p_expect_result AND publish.outcome = 'appended' THEN
    -- There is a row only if all that the message has is of this role: see insert_or_merge.
    UPDATE messages.expected_result AS x SET until = greatest(x.until, messages.now() + interval '1 day')
    WHERE x.message_id = publish.id AND x.role = session_user;
  END IF;
  IF cardinality(p_after) > 0 AND publish.outcome = 'inserted' THEN
    INSERT INTO messages.predecessor_list (message_id, ids, workflow_id)
    SELECT publish.id, p_after,
           coalesce((SELECT p.workflow_id FROM messages.predecessor_list AS p WHERE p.message_id = o.id), o.id)
    FROM (SELECT min(a.id) AS id FROM unnest(p_after) AS a (id)) AS o;
  END IF;
  IF v_before IS NOT NULL AND publish.outcome = 'inserted' THEN
    PERFORM messages.add_dependencies(
      publish.id, v_before, v_failed_results, p_after_failed, p_available_at, p_delay, p_ttl);
  END IF;
END
$$;

-- Block a message that was just inserted until others have ended.
-- Called by: publish, in its transaction. p_predecessors, p_failed_results: for what it waits, and how those of them
-- ended that have. p_available_at, p_delay, p_ttl: the publisher's times; they count from its release. If
-- p_after_failed is cancel and a predecessor already ended badly, the message is cancelled here.
-- Locks: the rows it inserts.
CREATE OR REPLACE FUNCTION messages.add_dependencies(
  p_id bigint, p_predecessors bigint[], p_failed_results text[], p_after_failed text, p_available_at timestamptz,
  p_delay interval, p_ttl interval
)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_dead record;
BEGIN
  SELECT d.id, d.failed_result INTO v_dead FROM unnest(p_predecessors, p_failed_results) AS d (id, failed_result)
  WHERE d.failed_result IS NOT NULL LIMIT 1;
  IF v_dead.id IS NOT NULL AND p_after_failed = 'cancel' THEN
    PERFORM messages.archive(
      ARRAY[p_id], NULL, 'cancelled',
      ARRAY[format('cancelled: message %s, after which it comes, ended as %s', v_dead.id, v_dead.failed_result)],
      NULL, NULL, true);
    RETURN;
  END IF;
  INSERT INTO messages.blocked_message (id, after_failed, available_at, delay, ttl, width)
  VALUES (p_id, p_after_failed, p_available_at, p_delay, p_ttl, cardinality(p_predecessors));
  INSERT INTO messages.dependency (successor_id, predecessor_id, failed_result)
  SELECT p_id, e.id, e.failed_result FROM unnest(p_predecessors, p_failed_results) AS e (id, failed_result);
  PERFORM messages.raise_awaited_flag();
END
$$;
