-- Lock the next ready rows of one topic that have a channel: one round over the channels from p_after on, a fair share
-- of each.
-- Called by: claim. p_after NULL: from where the last such claim of this topic's channels ended (read_claim_cursor).
-- p_marks: as pick_without_channel. Locks and result: as pick_channel_rows; where channels have limits, those of
-- channel_slots as well. A quiet channel waits for at most one round, however many messages another one has. held_back:
-- a limit made it skip some that are due. Where few messages are due, their places, i.e. (channel, priority) pairs, are
-- read by time (oldest_due_channels). Where many are, it walks from place to place (due_channels). Where thousands of
-- channels are at their limits or have only delayed messages, one claim examines some of them, and the next one of the
-- same session continues where it ended: a claim shares its transaction with a settle, which must not wait for a walk
-- over all of them. The progress of the round is a setting of the session; without it (behind a pooler, after a
-- reconnect) the round starts over.
CREATE OR REPLACE FUNCTION messages.pick_with_channel(
  p_policy messages.policy, p_now timestamptz, p_after text, p_limit integer, p_bytes bigint, p_marks boolean
)
RETURNS messages.picked
LANGUAGE plpgsql
AS $$
DECLARE
  v_rounds     jsonb   := coalesce(nullif(current_setting('messages.channel_rounds', true), ''), '{}')::jsonb;
  v_resumed    boolean := v_rounds ? p_policy.topic;
  v_round      messages.channel_round;
  v_is_over    boolean := true;
  v_all        messages.picked := row('{}', 0, NULL, NULL, false, NULL);
  v_picked     messages.picked;
  v_walk       text    := 'channels ' || p_policy.topic;
  v_low        timestamptz;
  v_due        messages.due_places;
  v_cursor     text    := p_after;
  v_look_at    integer := p_limit;
  v_looks      integer := greatest(2000, 4 * p_limit);
  v_looked     integer;
  v_reached    text;
  v_channels   text[];
  v_priorities smallint[];
BEGIN
  IF p_limit <= 0 OR p_bytes <= 0 THEN
    RETURN v_all;
  END IF;
  v_low := CASE WHEN p_marks THEN messages.channel_low_water(p_policy.topic) ELSE '-infinity' END;
  v_due := messages.oldest_due_channels(
    p_policy.topic, v_low, p_now, CASE WHEN v_low > '-infinity' THEN 1000 ELSE 200 END);
  IF v_due.channels IS NULL THEN
    RETURN v_all;
  END IF;
  IF p_after IS NULL THEN
    v_cursor := messages.read_claim_cursor(v_walk);
  END IF;
  v_round := CASE
    WHEN v_resumed THEN jsonb_populate_record(NULL::messages.channel_round, v_rounds -> p_policy.topic)
    ELSE row(v_cursor, coalesce(v_cursor, ''), v_cursor IS NULL, false, NULL)::messages.channel_round
  END;
  WHILE cardinality(v_all.rows) < p_limit AND v_all.bytes < p_bytes LOOP
    IF v_looks <= 0 THEN
      EXIT WHEN NOT v_is_over;
      v_is_over := false;
      EXIT WHEN v_all.rows <> '{}' OR p_policy.limits_channels;
      -- Nothing was found so far, and something is due: this once what has been due longest.
      v_channels := v_due.channels;
      v_priorities := v_due.priorities;
    ELSE
      SELECT n.channels, n.priorities, n.looked, n.reached
      INTO v_channels, v_priorities, v_looked, v_reached
      FROM messages.next_channels(
        p_policy.topic, v_due, v_round.after, CASE WHEN v_round.wrapped THEN v_round.upto END, p_now, v_look_at, v_low,
        v_looks, CASE WHEN v_round.held THEN 8 ELSE 2 END) AS n;
      IF v_reached IS NULL THEN
        EXIT WHEN v_round.wrapped;
        v_round.wrapped := true;
        v_round.after := '';
        CONTINUE;
      END IF;
      v_round.after := v_reached;
      -- Most of the channels may be at their limits: look at more and more of them at once.
      v_looks := v_looks - v_looked;
      v_look_at := least(1000, 4 * v_look_at);
      CONTINUE WHEN v_channels IS NULL;
    END IF;
    IF v_round.held AND p_policy.limits_channels THEN
      -- Such a look takes twice as long as walking over the pair: both together count as three.
      v_looks := v_looks - 2 * cardinality(v_channels);
      SELECT u.channels, u.priorities, least(v_round.until, u.until)
      INTO v_channels, v_priorities, v_round.until
      FROM messages.unheld_channels(p_policy, v_channels, v_priorities, p_now) AS u;
      CONTINUE WHEN v_channels IS NULL;
    END IF;

    v_picked := messages.pick_shares(
      p_policy, p_now, v_channels, v_priorities, p_limit, p_limit - cardinality(v_all.rows), p_bytes - v_all.bytes,
      v_low);
    v_round.held := v_round.held OR v_picked.held_back;
    v_round.until := least(v_round.until, v_picked.look_again_at);
    v_all := row(
      v_all.rows || v_picked.rows, v_all.bytes + coalesce(v_picked.bytes, 0),
      v_all.over || v_picked.over, v_all.expired || v_picked.expired, false, NULL);
  END LOOP;

  IF v_round.held AND cardinality(v_all.rows) < p_limit THEN
    -- A message that ended instead of being returned leaves its room to the next one. A round that is not over
    -- continues at once. If a round took several claims, its first channels may have changed since then, so the next
    -- round begins soon.
    v_all.held_back := true;
    v_all.look_again_at := CASE
      WHEN NOT v_is_over OR num_nonnulls(v_all.over, v_all.expired) > 0 THEN p_now
      WHEN v_resumed THEN least(v_round.until, p_now + interval '1 s')
      ELSE v_round.until
    END;
  END IF;
  IF v_resumed OR NOT v_is_over THEN
    v_rounds := v_rounds - p_policy.topic;
    IF NOT v_is_over THEN
      v_rounds := v_rounds || jsonb_build_object(p_policy.topic, v_round);
    END IF;
    PERFORM set_config('messages.channel_rounds', v_rounds::text, false);
  END IF;
  IF v_all.rows <> '{}' THEN
    PERFORM messages.add_low_water(p_policy.topic, (-1)::smallint);
    IF p_after IS NULL THEN
      v_reached := CASE
        WHEN v_is_over THEN (
          SELECT m.channel FROM messages.message AS m WHERE m.ctid = v_all.rows[cardinality(v_all.rows)])
        ELSE v_round.after
      END;
      PERFORM messages.save_claim_cursor(v_walk, v_reached, v_cursor);
    END IF;
    IF p_policy.limits_channels THEN
      PERFORM messages.charge_channel_rates(p_policy, v_all.rows);
    END IF;
  END IF;
  RETURN v_all;
END
$$;

-- The next (channel, priority) pairs of a round that have a due message.
-- Called by: pick_with_channel. Locks: nothing. p_due: what oldest_due_channels found; if that is not all, the other
-- arguments are those of due_channels.
-- Result: the pairs in their order, NULL = none of those that were examined is due; looked: how many were examined;
-- reached: the channel with which the look ended, NULL = there is no further one.
CREATE OR REPLACE FUNCTION messages.next_channels(
  p_topic text, p_due messages.due_places, p_after text, p_upto text, p_now timestamptz, p_limit integer,
  p_low timestamptz, p_looks integer, p_entries integer,
  OUT channels text[], OUT priorities smallint[], OUT looked integer, OUT reached text
)
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  IF p_due.is_all THEN
    SELECT array_agg(d.channel ORDER BY d.channel COLLATE "C", d.priority),
           array_agg(d.priority ORDER BY d.channel COLLATE "C", d.priority),
           count(*), max(d.channel COLLATE "C")
    INTO channels, priorities, looked, reached
    FROM (
      SELECT u.channel, u.priority
      FROM unnest(p_due.channels, p_due.priorities) AS u (channel, priority)
      WHERE u.channel > p_after COLLATE "C" AND (p_upto IS NULL OR u.channel <= p_upto COLLATE "C")
      ORDER BY u.channel COLLATE "C"
      -- A channel as a whole: the walk goes on behind it.
      FETCH FIRST (p_limit) ROWS WITH TIES) AS d;
    RETURN;
  END IF;
  SELECT array_agg(d.channel) FILTER (WHERE d.is_due), array_agg(d.priority) FILTER (WHERE d.is_due),
         max(d.nth), max(d.channel COLLATE "C")
  INTO channels, priorities, looked, reached
  FROM messages.due_channels(p_topic, p_after, p_upto, p_now, p_limit, p_low, p_looks, p_entries) AS d;
END
$$;

-- Lock rows of these places, of each channel about the same number.
-- Called by: pick_with_channel. p_limit: of the claim; p_left, p_bytes: what is left of it. Locks: as
-- pick_channel_rows; where channels have limits, those of channel_slots as well. Result: held_back: a limit left some
-- out, until look_again_at.
CREATE OR REPLACE FUNCTION messages.pick_shares(
  p_policy messages.policy, p_now timestamptz, p_channels text[], p_priorities smallint[], p_limit integer,
  p_left integer, p_bytes bigint, p_low timestamptz
)
RETURNS messages.picked
LANGUAGE plpgsql
AS $$
DECLARE
  -- Twice the even share: where some have less, others may fill up, and no claim locks many more rows than it takes.
  v_share  integer   := least(p_limit, ceil(2.0 * p_limit / cardinality(p_channels)));
  v_slots  integer[] := array_fill(v_share, ARRAY[cardinality(p_channels)]);
  v_held   boolean   := false;
  v_until  timestamptz;
  v_picked messages.picked;
BEGIN
  IF p_policy.limits_channels THEN
    SELECT r.slots, r.held, r.until INTO v_slots, v_held, v_until
    FROM messages.channel_slots(p_policy, p_channels, p_now, v_share) AS r;
  END IF;
  v_picked := messages.pick_channel_rows(
    p_policy, p_now, p_channels, p_priorities, v_slots, p_left, p_bytes, p_low);
  v_picked.held_back := v_held;
  v_picked.look_again_at := v_until;
  RETURN v_picked;
END
$$;

-- The (channel, priority) pairs of one topic whose messages have been due longest: those of its first p_most messages.
-- Called by: pick_with_channel. Locks: nothing. p_low: nothing that is ready has an earlier time.
-- Result: the pairs in their order; is_all: these are all pairs with a due message. It reads the index by time: delayed
-- messages cost nothing, however many channels they are in.
CREATE OR REPLACE FUNCTION messages.oldest_due_channels(
  p_topic text, p_low timestamptz, p_now timestamptz, p_most integer
)
RETURNS messages.due_places
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_due messages.due_places;
BEGIN
  SELECT array_agg(p.channel ORDER BY p.channel, p.priority), array_agg(p.priority ORDER BY p.channel, p.priority),
         coalesce(sum(p.due), 0) < p_most
  INTO v_due
  FROM (
    SELECT f.channel, f.priority, count(*) AS due
    FROM (
      SELECT m.channel, m.priority
      FROM messages.message AS m
      WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL
        AND m.available_at >= p_low AND m.available_at <= p_now
      ORDER BY m.available_at
      LIMIT p_most) AS f
    GROUP BY f.channel, f.priority) AS p;
  RETURN v_due;
END
$$;
