-- Does the same as `messages.claim`, for workers that sleep until something is due: it also returns [what limits hold
-- back](#what-limits-hold-back), and when the next message is due.
--
-- Arguments: as `claim`. `p_look_ahead`: false = do not look for the next due message.
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
  p_look_ahead     boolean   DEFAULT true
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
  -- With one topic, the claim does not look for the topic to begin with.
  v_single    boolean     := cardinality(p_topics) = 1;
  v_walk      text        := CASE WHEN p_after_topic IS NULL AND NOT v_single THEN 'topics ' || md5(p_topics::text) END;
  v_last      text        := CASE WHEN v_walk IS NOT NULL THEN messages.read_claim_cursor(v_walk) END;
  v_first     text        := CASE WHEN v_single THEN '' ELSE coalesce(p_after_topic, v_last, '') END;
  v_wrapped   boolean     := v_first = '';
  v_ended     text;
  v_topic     text;
  v_look      record;
  v_is_plain  boolean;
  v_is_rest   boolean     := false;
  v_nth       integer;
  v_room      integer;
  v_taken     integer;
  v_found     integer;
  v_slots     record;
  v_held      jsonb;
  v_policy    messages.policy;
  v_picked    messages.picked;
  v_lock      interval;
  v_lock_s    double precision;
  v_timeout_s double precision;
  v_flushes   boolean;
  v_wanted    text[]      := p_topics;
  v_stopped   integer     := 0;
  v_is_empty  boolean     := false;
  v_last_row  messages.claimed_or_due;
BEGIN
  IF p_worker IS NULL OR p_topics IS NULL OR p_limit IS NULL THEN
    RAISE EXCEPTION 'claim needs a worker, its topics and a limit' USING ERRCODE = '22004';
  END IF;
  PERFORM messages.check_worker_name(p_worker);
  -- Not left to the column's domain: its error would not say whose value it was.
  IF p_lock_duration NOT BETWEEN '0' AND '7 days' THEN
    RAISE EXCEPTION 'lock_duration of a claim is %', p_lock_duration USING ERRCODE = '22023', HINT = 'use an interval from 0 to 7 days';
  END IF;
  LOOP
    IF NOT v_is_rest THEN
      EXIT WHEN v_left <= 0 OR v_bytes <= 0 OR (v_single AND v_topic IS NOT NULL);
      v_topic := CASE WHEN v_single THEN p_topics[1] ELSE messages.next_topic(v_wanted, coalesce(v_topic, v_first)) END;
      IF v_topic IS NULL AND NOT v_wrapped THEN
        v_wrapped := true;
        v_topic := messages.next_topic(v_wanted, '');
      END IF;
      EXIT WHEN v_topic IS NULL OR (v_wrapped AND v_first <> '' AND v_topic COLLATE "C" > v_first COLLATE "C");
    END IF;

    -- Most topics are plain: no message has a channel, and nothing limits claims. One statement tells, and the next one
    -- picks and locks: a claim of few messages costs what its statements cost. One in 64 goes the other way, for what
    -- may be below a low-water mark.
    SELECT f.priority, f.low, f.first_at, f.first_max_attempts, c.may_have_channels, q.policy, q.is_plain,
           EXISTS (SELECT FROM messages.low_water AS w WHERE w.topic = v_topic AND w.priority = f.priority) AS is_in_directory
    INTO v_look
    FROM messages.next_priority(v_topic, (-1)::smallint, true) AS f
    CROSS JOIN messages.may_have_channels(v_topic) AS c
    CROSS JOIN messages.plain_policy(v_topic) AS q;
    v_is_empty := v_look.priority IS NULL AND NOT v_look.may_have_channels AND NOT v_is_rest;
    -- Nothing is there: another claim was faster since next_topic saw a message, or the only topic is empty.
    CONTINUE WHEN v_is_empty;
    v_is_plain := v_look.is_plain AND NOT v_look.may_have_channels AND NOT v_is_rest AND v_claim % 64 <> 0
      AND (v_look.first_at > v_now) IS NOT TRUE;
    v_policy := CASE WHEN v_is_plain THEN v_look.policy ELSE messages.claim_policy(v_topic, v_now) END;

    v_nth := array_position(p_topics, v_topic);
    v_taken := CASE WHEN v_is_rest THEN v_found ELSE 0 END;
    v_is_rest := false;
    v_room := coalesce(p_slots[v_nth] - v_taken, v_left);
    IF p_prefetch IS NOT NULL AND (v_policy.is_limited OR v_policy.limits_channels) THEN
      v_room := v_room - p_prefetch[v_nth];
    END IF;
    v_room := least(v_left, v_room);
    IF v_policy.stopped_until IS NOT NULL THEN
      v_held := coalesce(v_held, '{}') || jsonb_build_object('topic ' || v_topic, nullif(v_policy.stopped_until, 'infinity'));
      v_room := 0;
      v_stopped := v_stopped + 1;
      IF v_stopped = 8 THEN
        SELECT v_held || p.held_back, p.others INTO v_held, v_wanted FROM messages.paused_topics(v_wanted, v_now) AS p;
      END IF;
    ELSIF v_policy.is_limited AND v_room > 0 THEN
      v_slots := messages.topic_slots(v_policy, v_room);
      v_room := v_slots.slots;
      IF v_room = 0 THEN
        v_held := coalesce(v_held, '{}') || jsonb_build_object('topic ' || v_topic, v_slots.look_again_at);
      END IF;
      v_now := messages.now();
    END IF;

    IF v_room > 0 THEN
      v_picked := NULL;
      IF NOT v_is_plain THEN
        v_picked := messages.pick_messages(v_policy, v_now, v_claim, p_after_channels ->> v_topic, v_room, v_bytes);
        PERFORM messages.archive_unclaimable(v_picked, p_worker);
        IF v_picked.held_back THEN
          v_held := coalesce(v_held, '{}') || jsonb_build_object('channels ' || v_topic, nullif(v_picked.look_again_at, 'infinity'));
        END IF;
      ELSIF NOT v_look.is_in_directory THEN
        PERFORM messages.add_low_water(v_topic, v_look.priority);
      END IF;
      -- After a crash that undoes a claim the message runs twice at once, and its attempt is not counted. So the claim
      -- must be on the disk where that would break a promise, whatever its caller chose: the topic or its channels have
      -- a limit or an order, or it is the last attempt of a message. The first message usually tells; if it has
      -- attempts left, each is asked below, which takes some percent longer.
      IF current_setting('synchronous_commit') = 'off' AND (
        v_policy.is_limited OR v_policy.limits_channels OR coalesce(v_look.first_max_attempts, v_policy.max_attempts) = 1)
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
          attempts = m.attempts + 1, runs = m.runs + (r.nth <= v_start)::integer, prefetched = CASE WHEN r.nth > v_start THEN true END
      FROM (
        SELECT u.ctid, u.nth FROM unnest(v_picked.rows) WITH ORDINALITY AS u (ctid, nth)
        UNION ALL
        SELECT d.ctid, d.nth
        FROM (
          SELECT n.ctid, n.can_run, row_number() OVER walk AS nth, sum(n.bytes) OVER walk AS bytes_through
          FROM (
            SELECT a.ctid, a.available_at, a.id,
                   coalesce(a.content_bytes, 0) + coalesce(messages.jsonb_text_bytes(a.state), 0) AS bytes,
                   (a.expires_at <= v_now OR a.content_bytes > 33554432 OR a.attempts >= nullif(coalesce(a.max_attempts, v_policy.max_attempts), 0))
                     IS NOT TRUE AS can_run
            FROM messages.message AS a
            WHERE a.topic = v_topic AND a.priority = v_look.priority AND a.claim_id IS NULL AND a.channel IS NULL
              AND a.available_at >= v_look.low AND a.available_at <= v_now
            ORDER BY a.available_at, a.id
            LIMIT CASE WHEN v_is_plain THEN v_room ELSE 0 END
            FOR NO KEY UPDATE SKIP LOCKED) AS n
          WINDOW walk AS (ORDER BY n.available_at, n.id)) AS d
        WHERE d.can_run AND d.bytes_through <= v_bytes / 2) AS r
      WHERE m.ctid = r.ctid
      RETURNING
        m.id, m.claim_id, m.topic::text, m.channel::text, m.key::text, m.priority::smallint, m.attempts::integer,
        nullif(coalesce(m.max_attempts, v_policy.max_attempts), 0)::integer,
        CASE WHEN p_contents THEN m.payload::text END, CASE WHEN p_contents THEN m.body::bytea END,
        CASE WHEN p_contents THEN m.headers::text END, CASE WHEN p_contents THEN m.state::text END,
        v_lock_s, v_timeout_s,
        -- extract is slower: it returns numeric.
        date_part('epoch', v_now - m.available_at),
        CASE WHEN m.history IS NULL THEN 0 ELSE coalesce(date_part('epoch', v_now - (m.history -> 0 ->> 'started')::timestamptz), 0) END,
        -- That of one which waits in the worker is counted when it begins.
        (m.runs + coalesce(m.prefetched, false)::integer)::integer,
        CASE WHEN NOT v_flushes AND m.attempts >= nullif(coalesce(m.max_attempts, v_policy.max_attempts), 0)
             AND current_setting('synchronous_commit') = 'off' THEN messages.flush_at_commit() END,
        NULL::double precision;
      GET DIAGNOSTICS v_found = ROW_COUNT;
      v_left := v_left - v_found;
      v_start := v_start - v_found;
      IF v_policy.dequeue_rate IS NOT NULL AND v_found > 0 THEN
        PERFORM messages.charge_rate('dequeue', v_topic, v_policy.dequeue_rate, v_found, v_now);
      END IF;
      v_ended := CASE WHEN v_found > 0 THEN v_topic ELSE v_ended END;
      -- What is left of a plain topic goes the other way: other priorities, messages that end instead, and what did not
      -- fit into half of the bytes. How many bytes were claimed is not known here.
      v_is_rest := v_is_plain AND v_found < v_room AND messages.has_due(v_topic, v_now);
      v_bytes := v_bytes - CASE WHEN NOT v_is_plain THEN v_picked.bytes WHEN v_found > 0 THEN v_bytes / 2 ELSE 0 END;
    END IF;
  END LOOP;
  IF v_walk IS NOT NULL AND v_ended IS NOT NULL THEN
    PERFORM messages.save_claim_cursor(v_walk, v_ended, v_last);
  END IF;
  v_last_row.held_back := v_held;
  IF v_ended IS NULL AND p_look_ahead AND NOT (v_single AND v_is_empty) THEN
    v_last_row.next_due_s := date_part('epoch', messages.next_due(p_topics, v_held));
  END IF;
  RETURN NEXT v_last_row;
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

-- Returns whether a topic has a due message without a channel.
-- Called by: claim. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.has_due(p_topic text, p_now timestamptz)
RETURNS boolean
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_next record;
BEGIN
  SELECT n.* INTO v_next FROM messages.next_priority(p_topic, (-1)::smallint, true) AS n;
  WHILE v_next.priority IS NOT NULL LOOP
    IF coalesce(v_next.first_at <= p_now, EXISTS (
      SELECT FROM messages.message AS m
      WHERE m.topic = p_topic AND m.priority = v_next.priority AND m.claim_id IS NULL AND m.channel IS NULL
        AND m.available_at >= v_next.low AND m.available_at <= p_now))
    THEN
      RETURN true;
    END IF;
    SELECT n.* INTO v_next FROM messages.next_priority(p_topic, v_next.priority, true) AS n;
  END LOOP;
  RETURN false;
END
$$;

-- Lock the next ready rows of one topic, with and without a channel.
-- Called by: claim. Odd claims begin with the channels, even ones without: neither kind starves the other. A topic
-- whose channels have a low-water mark has had some; where there is none, looking for a first entry does not walk over
-- dead ones. Locks and result: as pick_without_channel and pick_with_channel.
CREATE OR REPLACE FUNCTION messages.pick_messages(
  p_policy messages.policy, p_now timestamptz, p_claim_id bigint, p_after text, p_limit integer, p_bytes bigint
)
RETURNS messages.picked
LANGUAGE plpgsql
AS $$
DECLARE
  -- Where no session raises the marks, some claims read from the left edge, so that no row can stay below a mark
  -- forever.
  v_marks  boolean := p_claim_id % 64 <> 0
    OR EXISTS (SELECT FROM messages.low_water_mark AS k WHERE k.left_edge_at > clock_timestamp() - interval '1 minute');
  v_first  messages.picked;
  v_second messages.picked;
BEGIN
  IF NOT (
    EXISTS (SELECT FROM messages.low_water AS w WHERE w.topic = p_policy.topic AND w.priority = -1)
    OR EXISTS (SELECT FROM messages.message AS m WHERE m.topic = p_policy.topic AND m.claim_id IS NULL AND m.channel IS NOT NULL)
  ) THEN
    RETURN messages.pick_without_channel(p_policy, p_now, p_limit, p_bytes, v_marks);
  END IF;
  IF p_claim_id % 2 = 1 THEN
    v_first := messages.pick_with_channel(p_policy, p_now, p_after, p_limit, p_bytes, v_marks);
    v_second := messages.pick_without_channel(p_policy, p_now, p_limit - cardinality(v_first.rows), p_bytes - v_first.bytes, v_marks);
  ELSE
    v_first := messages.pick_without_channel(p_policy, p_now, p_limit, p_bytes, v_marks);
    v_second := messages.pick_with_channel(p_policy, p_now, p_after, p_limit - cardinality(v_first.rows), p_bytes - v_first.bytes, v_marks);
  END IF;
  RETURN row(
    v_first.rows || v_second.rows, v_first.bytes + v_second.bytes,
    v_first.over || v_second.over, v_first.expired || v_second.expired,
    v_first.held_back OR v_second.held_back, coalesce(v_first.look_again_at, v_second.look_again_at))::messages.picked;
END
$$;
