-- Lock the next ready rows of one topic that have a channel: once round the channels from p_after on, a fair share of each.
-- Called by: claim. Locks and result: as pick_places; where channels have limits, those of channel_rooms as well.
-- A quiet channel waits for no more than one round, however much another one holds. What was passed over because of a limit is noted by
-- hold_back.
-- Where thousands of channels are at their limits one claim looks at some of them, and the next one of the same session goes on where it
-- ended: a claim shares its transaction with a settle, which must not wait for a walk over all of them. How far the round has come is a
-- setting of the session; without it (behind a pooler, after a reconnect) a round begins anew.
CREATE OR REPLACE FUNCTION messages.pick_channels(p_policy messages.policy, p_now timestamptz, p_after text, p_limit integer, p_bytes bigint)
RETURNS messages.picked
LANGUAGE plpgsql
AS $$
DECLARE
  v_rounds     jsonb   := coalesce(nullif(current_setting('messages.rounds', true), ''), '{}')::jsonb;
  v_round      jsonb   := v_rounds -> p_policy.topic;
  v_all        messages.picked := row('{}', 0, NULL, NULL);
  v_picked     messages.picked;
  v_from       text    := CASE WHEN v_round IS NULL THEN p_after ELSE v_round ->> 'from' END;
  v_after      text    := coalesce(v_round ->> 'after', p_after, '');
  v_wrapped    boolean := coalesce((v_round ->> 'wrapped')::boolean, p_after IS NULL);
  v_held       boolean := v_round IS NOT NULL;
  v_until      timestamptz := (v_round ->> 'until')::timestamptz;
  v_look_at    integer := p_limit;
  v_looks      integer := greatest(2000, 4 * p_limit);
  v_share      integer;
  v_channels   text[];
  v_priorities smallint[];
  v_rooms      integer[];
BEGIN
  IF p_limit <= 0 OR p_bytes <= 0 THEN
    RETURN v_all;
  END IF;
  v_round := NULL;
  WHILE cardinality(v_all.rows) < p_limit AND v_all.bytes < p_bytes LOOP
    IF v_looks <= 0 AND p_policy.limits_channels THEN
      v_round := jsonb_build_object('from', v_from, 'after', v_after, 'wrapped', v_wrapped, 'until', v_until);
      EXIT;
    END IF;
    SELECT array_agg(d.channel), array_agg(d.priority)
    INTO v_channels, v_priorities
    FROM messages.due_places(p_policy.topic, v_after, CASE WHEN v_wrapped THEN v_from END, p_now, v_look_at) AS d;
    IF v_channels IS NULL THEN
      EXIT WHEN v_wrapped;
      v_wrapped := true;
      v_after := '';
      CONTINUE;
    END IF;

    -- Twice the even share: where some have less, others may fill up, and no claim locks many more rows than it takes.
    v_share := least(p_limit, ceil(2.0 * p_limit / cardinality(v_channels)));
    v_rooms := array_fill(v_share, ARRAY[cardinality(v_channels)]);
    IF p_policy.limits_channels THEN
      SELECT r.rooms, v_held OR r.held, least(v_until, r.until)
      INTO v_rooms, v_held, v_until
      FROM messages.channel_rooms(p_policy, v_channels, p_now, v_share) AS r;
    END IF;
    v_picked := messages.pick_places(
      p_policy, p_now, v_channels, v_priorities, v_rooms, p_limit - cardinality(v_all.rows), p_bytes - v_all.bytes);
    v_all := row(
      v_all.rows || v_picked.rows, v_all.bytes + coalesce(v_picked.bytes, 0),
      v_all.over || v_picked.over, v_all.expired || v_picked.expired);
    v_after := v_channels[cardinality(v_channels)];
    -- Most of the channels may be at their limits: look at more and more of them at once.
    v_looks := v_looks - cardinality(v_channels);
    v_look_at := least(1000, 4 * v_look_at);
  END LOOP;

  IF v_held AND cardinality(v_all.rows) < p_limit THEN
    -- What ended instead of being worked has left its room to the next; and a round that is not over goes on at once.
    v_until := CASE WHEN v_round IS NOT NULL OR num_nonnulls(v_all.over, v_all.expired) > 0 THEN p_now ELSE v_until END;
    PERFORM messages.hold_back(p_policy.topic, 'channels', v_until);
  END IF;
  IF v_round IS NOT NULL OR v_rounds ? p_policy.topic THEN
    v_rounds := CASE WHEN v_round IS NULL THEN v_rounds - p_policy.topic ELSE v_rounds || jsonb_build_object(p_policy.topic, v_round) END;
    PERFORM set_config('messages.rounds', v_rounds::text, false);
  END IF;
  IF p_policy.limits_channels AND v_all.rows <> '{}' THEN
    PERFORM messages.charge_channels(p_policy, v_all.rows);
  END IF;
  RETURN v_all;
END
$$;
