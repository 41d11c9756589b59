-- Does the same as `messages.claim`, for workers that sleep until something is due: it also returns [what limits hold
-- back](#what-limits-hold-back), and when the next message is due.
--
-- Arguments: as `claim`. `p_look_ahead`: false = do not look for the next due message. `p_message_id`: a message that
-- the worker was notified of. If it is ready, and neither its topic nor a channel limits claims, the claim takes only
-- that one; otherwise it is made as if nothing were given.
-- Result: the messages, and after them always one row without an `id`, of the type `messages.claimed_or_due`: its
-- `held_back` and `next_due_s` say [what limits hold back](#what-limits-hold-back), and when the next message is due.
-- Errors: as `messages.claim`.
-- Locks: as `messages.claim`.
-- Repeat: as `messages.claim`.
-- Called by: workers that sleep until something is due.
-- Inside: It is a row since a function that returns rows can return nothing else; as an array, claimed messages would
-- be slower to read. Plan shape: first the row addresses, then an UPDATE by address, one by one in their order (ctid =
-- ANY would sort them by address). A join against a CTE would become a hash join over the whole table once its plan is
-- generic.
CREATE OR REPLACE FUNCTION messages.claim_with_next_due(
  p_worker         text,
  p_topics         text[],
  p_limit          integer,
  p_slots          integer[] DEFAULT NULL,
  p_bytes          bigint    DEFAULT 16777216,
  p_lock_duration  interval  DEFAULT NULL,
  p_after_topic    text      DEFAULT NULL,
  p_after_channels jsonb     DEFAULT NULL,
  p_start          integer   DEFAULT NULL,
  p_prefetch       integer[] DEFAULT NULL,
  p_contents       boolean   DEFAULT true,
  p_look_ahead     boolean   DEFAULT true,
  p_message_id     bigint    DEFAULT NULL
)
RETURNS SETOF messages.claimed_or_due
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now       timestamptz := messages.now();
  -- Drawn by lot, since a sequence would repeat itself after a crash of the server: what an unflushed transaction drew
  -- is drawn again.
  v_claim     bigint      := 1 + floor(random() * 4503599627370496)::bigint;
  v_left      integer     := least(p_limit, 10000);
  v_bytes     bigint      := coalesce(p_bytes, 16777216);
  v_start     integer     := coalesce(p_start, p_limit);
  -- Most lists have none: the call is left out.
  v_patterns  text[]      := CASE
    WHEN strpos(array_to_string(p_topics, ''), '*') > 0 THEN messages.topic_patterns(p_topics)
  END;
  -- With one topic, the claim does not look for the topic to begin with.
  v_single    boolean     := cardinality(p_topics) = 1 AND v_patterns IS NULL;
  v_walk      text        := CASE WHEN p_after_topic IS NULL AND NOT v_single THEN 'topics ' || md5(p_topics::text) END;
  v_last      text        := CASE WHEN v_walk IS NOT NULL THEN messages.read_claim_cursor(v_walk) END;
  v_first     text        := CASE WHEN v_single THEN '' ELSE coalesce(p_after_topic, v_last, '') END;
  v_wrapped   boolean     := v_first = '';
  v_wanted    text[]      := p_topics;
  v_except    text[];
  v_slots     integer[]   := p_slots;
  v_topic     text;
  -- The place in p_topics of the topic, or of the pattern that it belongs to.
  v_entry     integer;
  v_is_rest   boolean     := false;
  v_found     integer;
  v_stopped   integer     := 0;
  v_ended     text;
  v_look      messages.claim_look;
  v_plan      messages.claim_plan;
  v_policy    messages.policy;
  v_lock      interval;
  v_lock_s    double precision;
  v_timeout_s double precision;
  v_flushes   boolean;
  v_last_row  messages.claimed_or_due;
BEGIN
  PERFORM messages.check_claim(p_worker, p_topics, p_limit, p_lock_duration);
  IF v_patterns IS NOT NULL AND p_slots IS NOT NULL THEN
    SELECT t.wanted, t.except_topics INTO v_wanted, v_except
    FROM messages.topics_with_slots(p_topics, p_slots) AS t;
  END IF;
  IF p_message_id IS NOT NULL AND p_limit > 0 AND v_bytes > 0 THEN
    v_look := messages.find_notified(p_message_id, p_topics, p_slots, v_patterns, v_wanted, v_now);
  END IF;
  LOOP
    IF v_look.row IS NOT NULL THEN
      v_topic := v_look.topic;
      v_plan.policy := v_look.policy;
      v_plan.picked := (ARRAY[v_look.row], 0, NULL, NULL, false, NULL)::messages.picked;
      v_plan.room := 1;
    ELSE
      IF NOT v_is_rest THEN
        EXIT WHEN v_left <= 0 OR v_bytes <= 0 OR (v_single AND v_topic IS NOT NULL);
        v_topic := CASE
          WHEN v_single THEN p_topics[1]
          ELSE messages.next_topic(v_wanted, coalesce(v_topic, v_first), true, v_patterns, v_except)
        END;
        IF v_topic IS NULL AND NOT v_wrapped THEN
          v_wrapped := true;
          v_topic := messages.next_topic(v_wanted, '', true, v_patterns, v_except);
        END IF;
        EXIT WHEN v_topic IS NULL OR (v_wrapped AND v_first <> '' AND v_topic COLLATE "C" > v_first COLLATE "C");
        -- This walks over the list, and most claims do not need it.
        IF p_slots IS NOT NULL OR p_prefetch IS NOT NULL THEN
          v_entry := array_position(p_topics, CASE
            WHEN v_patterns IS NULL THEN v_topic ELSE messages.find_entry(p_topics, v_patterns, v_topic)
          END);
        END IF;
      END IF;

      -- One claim in 64 is not plain, for what may be below a low-water mark.
      v_look := messages.look_at_topic(v_topic, v_is_rest OR v_claim % 64 = 0, v_now);
      -- Nothing is there: another claim was faster since next_topic saw a message, or the only topic is empty.
      CONTINUE WHEN v_look.is_empty;
      v_is_rest := false;
      IF v_look.is_plain THEN
        v_plan.policy := v_look.policy;
        v_plan.room := least(v_left, v_slots[v_entry]);
        v_plan.picked := NULL;
      ELSE
        v_plan := messages.plan_claim(
          p_worker, v_topic, v_now, v_claim, v_left, v_slots[v_entry], p_prefetch[v_entry], v_bytes,
          p_after_channels ->> v_topic);
        PERFORM messages.archive_unclaimable(v_plan.picked, p_worker);
        v_now := v_plan.at;
        v_last_row.held_back := nullif(coalesce(v_last_row.held_back, '{}') || v_plan.held_back, '{}');
        v_stopped := v_stopped + v_plan.is_stopped::integer;
        IF v_plan.is_stopped AND v_stopped = 8 THEN
          -- To look at thousands of topics that are paused one by one takes seconds.
          SELECT v_last_row.held_back || p.held_back, p.others, v_except || p.except_topics
          INTO v_last_row.held_back, v_wanted, v_except
          FROM messages.paused_topics(v_wanted, v_now, v_patterns) AS p;
        END IF;
      END IF;
    END IF;

    IF v_plan.room > 0 THEN
      v_policy := v_plan.policy;
      IF v_look.is_plain AND NOT v_look.is_in_directory THEN
        PERFORM messages.add_low_water(v_topic, v_look.priority);
      END IF;
      -- After a crash that undoes a claim the message runs twice at once, and its attempt is not counted. So the claim
      -- must be on the disk where that would break a promise, whatever its caller chose: the topic or its channels have
      -- a limit or an order, or it is the last attempt of a message. The first message usually tells; if it has
      -- attempts left, each is asked below, which takes some percent longer.
      IF current_setting('synchronous_commit') = 'off' AND (
        v_policy.is_limited OR v_policy.limits_channels
        OR coalesce(v_look.first_max_attempts, v_policy.max_attempts) = 1)
      THEN
        SET LOCAL synchronous_commit TO DEFAULT;
      END IF;
      v_flushes := current_setting('synchronous_commit') <> 'off';
      v_lock := coalesce(p_lock_duration, v_policy.lock_duration);
      v_lock_s := date_part('epoch', v_lock);
      v_timeout_s := date_part('epoch', v_policy.timeout);
      RETURN QUERY
      UPDATE messages.message AS m
      SET claim_id = v_claim, locked_by = p_worker, locked_at = v_now, lock_expires_at = v_now + v_lock,
          attempts = m.attempts + 1, runs = m.runs + (r.nth <= v_start)::integer,
          prefetched = CASE WHEN r.nth > v_start THEN true END
      FROM (
        SELECT u.ctid, u.nth FROM unnest((v_plan.picked).rows) WITH ORDINALITY AS u (ctid, nth)
        UNION ALL
        SELECT d.ctid, d.nth
        FROM (
          SELECT n.ctid, n.can_run, row_number() OVER walk AS nth, sum(n.bytes) OVER walk AS bytes_through
          FROM (
            SELECT a.ctid, a.available_at, a.id,
                   coalesce(a.content_bytes, 0) + coalesce(messages.jsonb_text_bytes(a.state), 0) AS bytes,
                   (a.expires_at <= v_now OR a.content_bytes > 33554432
                     OR a.attempts >= nullif(coalesce(a.max_attempts, v_policy.max_attempts), 0)) IS NOT TRUE AS can_run
            FROM messages.message AS a
            WHERE a.topic = v_topic AND a.priority = v_look.priority AND a.claim_id IS NULL AND a.channel IS NULL
              AND a.available_at >= v_look.low AND a.available_at <= v_now
            ORDER BY a.available_at, a.id
            LIMIT CASE WHEN v_look.is_plain AND v_look.row IS NULL THEN v_plan.room ELSE 0 END
            FOR NO KEY UPDATE SKIP LOCKED) AS n
          WINDOW walk AS (ORDER BY n.available_at, n.id)) AS d
        WHERE d.can_run AND d.bytes_through <= v_bytes / 2) AS r
      WHERE m.ctid = r.ctid
      RETURNING
        m.id, m.claim_id, m.topic::text, m.channel::text, m.key::text, m.priority::smallint, m.attempts::integer,
        nullif(coalesce(m.max_attempts, v_policy.max_attempts), 0)::integer,
        CASE WHEN p_contents THEN m.payload::text END, CASE WHEN p_contents THEN m.body::bytea END,
        CASE WHEN p_contents THEN m.headers::text END, CASE WHEN p_contents THEN m.state::text END,
        v_lock_s, coalesce(date_part('epoch', m.timeout), v_timeout_s),
        -- extract is slower: it returns numeric.
        date_part('epoch', v_now - m.available_at),
        CASE
          WHEN m.history IS NULL THEN 0
          ELSE coalesce(date_part('epoch', v_now - (m.history -> 0 ->> 'started')::timestamptz), 0)
        END,
        -- That of one which waits in the worker is counted when it begins.
        (m.runs + coalesce(m.prefetched, false)::integer)::integer, m.batch_id,
        CASE WHEN NOT v_flushes AND m.attempts >= nullif(coalesce(m.max_attempts, v_policy.max_attempts), 0)
             AND current_setting('synchronous_commit') = 'off' THEN messages.flush_at_commit() END,
        NULL::double precision;
      GET DIAGNOSTICS v_found = ROW_COUNT;
      v_ended := CASE WHEN v_found > 0 THEN v_topic ELSE v_ended END;
      EXIT WHEN v_look.row IS NOT NULL;
      v_left := v_left - v_found;
      v_start := v_start - v_found;
      IF v_slots IS NOT NULL THEN
        v_slots[v_entry] := v_slots[v_entry] - v_found;
        IF v_patterns IS NOT NULL AND v_slots[v_entry] <= 0 THEN
          -- The claim would go through all other topics of the pattern.
          v_wanted := array_remove(v_wanted, p_topics[v_entry]);
        END IF;
      END IF;
      IF v_policy.dequeue_rate IS NOT NULL AND v_found > 0 THEN
        PERFORM messages.charge_rate('dequeue', v_topic, v_policy.dequeue_rate, v_found, v_now);
      END IF;
      -- The rest of a plain topic goes the other way: other priorities, messages that end instead, and what did not
      -- fit into half of the bytes. How many bytes were claimed is not known here.
      v_is_rest := v_look.is_plain AND v_found < v_plan.room AND messages.has_due(v_topic, v_now);
      v_bytes := v_bytes - CASE
        WHEN NOT v_look.is_plain THEN (v_plan.picked).bytes WHEN v_found > 0 THEN v_bytes / 2 ELSE 0
      END;
    END IF;
  END LOOP;
  IF v_walk IS NOT NULL AND v_ended IS NOT NULL THEN
    PERFORM messages.save_claim_cursor(v_walk, v_ended, v_last);
  END IF;
  IF v_ended IS NULL AND p_look_ahead AND NOT (v_single AND v_look.is_empty IS TRUE) THEN
    v_last_row.next_due_s := date_part(
      'epoch',
      messages.next_due(p_topics, messages.passed_over(p_topics, p_slots, v_patterns, v_last_row.held_back)));
  END IF;
  RETURN NEXT v_last_row;
END
$$;

-- Returns the topics and patterns of a claim that have a slot. A topic without one must not count as one of a pattern.
-- Called by: claim_with_next_due, if there are patterns. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.topics_with_slots(
  p_topics text[], p_slots integer[], OUT wanted text[], OUT except_topics text[]
)
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT coalesce(array_agg(t.topic) FILTER (WHERE (p_slots[t.nth] <= 0) IS NOT TRUE), '{}'),
         array_agg(t.topic) FILTER (WHERE p_slots[t.nth] <= 0 AND right(t.topic, 1) <> '*')
  FROM unnest(p_topics) WITH ORDINALITY AS t (topic, nth)
$$;

-- Lock the message that a worker was notified of, if a claim may take it alone: it is ready, and its topic is plain.
-- Called by: claim_with_next_due, with its arguments; p_patterns: those of p_topics; p_wanted: the topics and patterns
-- that have a slot. Locks: the row, which is passed over if another session has locked it. Result: NULLs = make the
-- claim without it.
CREATE OR REPLACE FUNCTION messages.find_notified(
  p_message_id bigint, p_topics text[], p_slots integer[], p_patterns text[], p_wanted text[], p_now timestamptz
)
RETURNS messages.claim_look
LANGUAGE plpgsql
AS $$
DECLARE
  v_look messages.claim_look;
BEGIN
  SELECT m.topic::text, m.priority::smallint, m.available_at::timestamptz, m.max_attempts::integer, q.policy, m.ctid,
         true, false,
         EXISTS (
           SELECT FROM messages.low_water AS w
           WHERE w.topic = m.topic AND w.priority = m.priority)
  INTO v_look
  FROM messages.message AS m
  CROSS JOIN messages.plain_policy(m.topic) AS q
  WHERE m.id = p_message_id AND m.claim_id IS NULL AND m.channel IS NULL AND m.available_at <= p_now
    AND CASE
          WHEN p_patterns IS NULL THEN
            m.topic = ANY (p_topics) AND coalesce(p_slots[array_position(p_topics, m.topic::text)], 1) > 0
          ELSE messages.find_entry(p_topics, p_patterns, m.topic) = ANY (p_wanted)
        END
    AND q.is_plain
    AND (m.expires_at <= p_now OR m.content_bytes > 33554432
      OR m.attempts >= nullif(coalesce(m.max_attempts, (q.policy).max_attempts), 0)) IS NOT TRUE
  FOR NO KEY UPDATE OF m SKIP LOCKED;
  RETURN v_look;
END
$$;

-- Returns what a claim has to know of a topic before it picks. Most topics are plain: no message has a channel, nothing
-- limits claims. One statement tells, and the next one picks and locks: a claim of few messages costs what its
-- statements cost.
-- Called by: claim_with_next_due. p_thorough: the topic counts as one that is not plain. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.look_at_topic(p_topic text, p_thorough boolean, p_now timestamptz)
RETURNS messages.claim_look
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_look messages.claim_look;
BEGIN
  SELECT p_topic, f.priority, f.low, f.first_max_attempts, q.policy, NULL::tid,
         q.is_plain AND NOT c.may_have_channels AND NOT p_thorough AND (f.first_at > p_now) IS NOT TRUE,
         f.priority IS NULL AND NOT c.may_have_channels AND NOT p_thorough,
         EXISTS (
           SELECT FROM messages.low_water AS w
           WHERE w.topic = p_topic AND w.priority = f.priority)
  INTO v_look
  FROM messages.next_priority(p_topic, (-1)::smallint, true) AS f
  CROSS JOIN messages.may_have_channels(p_topic) AS c
  CROSS JOIN messages.plain_policy(p_topic) AS q;
  RETURN v_look;
END
$$;

-- Adds to what limits hold back the topics that have no slot in the worker: those of a pattern do not count either.
-- Called by: claim_with_next_due, with its arguments. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.passed_over(
  p_topics text[], p_slots integer[], p_patterns text[], p_held_back jsonb
)
RETURNS jsonb
LANGUAGE plpgsql
IMMUTABLE
AS $$
BEGIN
  IF p_patterns IS NULL OR p_slots IS NULL THEN
    RETURN p_held_back;
  END IF;
  RETURN coalesce(p_held_back, '{}') || (
    SELECT coalesce(jsonb_object_agg('full ' || t.topic, NULL::text), '{}')
    FROM unnest(p_topics) WITH ORDINALITY AS t (topic, nth)
    WHERE p_slots[t.nth] <= 0);
END
$$;

-- Returns which of a claim's topics and patterns a topic belongs to: its own name, else the most specific pattern.
-- Called by: claim_with_next_due. p_patterns: those of p_topics. Locks: nothing. Result: NULL = none.
CREATE OR REPLACE FUNCTION messages.find_entry(p_topics text[], p_patterns text[], p_topic text)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT CASE WHEN p_topic = ANY (p_topics) THEN p_topic ELSE messages.find_pattern(p_patterns, p_topic) END
$$;

-- Refuse a claim whose arguments make no sense.
-- Called by: claim_with_next_due. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.check_claim(
  p_worker text, p_topics text[], p_limit integer, p_lock_duration interval
)
RETURNS void
LANGUAGE plpgsql
IMMUTABLE
AS $$
BEGIN
  IF p_worker IS NULL OR p_topics IS NULL OR p_limit IS NULL THEN
    RAISE EXCEPTION 'claim needs a worker, its topics and a limit' USING ERRCODE = '22004';
  END IF;
  PERFORM messages.check_worker_name(p_worker);
  -- The column's domain does not check this: its error would not say whose value it was.
  IF p_lock_duration NOT BETWEEN '0' AND '7 days' THEN
    RAISE EXCEPTION 'lock_duration of a claim is %', p_lock_duration
      USING ERRCODE = '22023', HINT = 'use an interval from 0 to 7 days';
  END IF;
END
$$;

-- Make this transaction wait for the disk at its commit, whatever its caller chose.
-- Called by: claim, for a row whose last attempt begins: see there. Locks: nothing. Result: NULL.
CREATE OR REPLACE FUNCTION messages.flush_at_commit()
RETURNS jsonb
LANGUAGE plpgsql
AS $$
BEGIN
  SET LOCAL synchronous_commit TO DEFAULT;
  RETURN NULL;
END
$$;
