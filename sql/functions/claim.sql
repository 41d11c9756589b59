-- Lock a batch of ready messages for a worker.
-- Called by: workers. p_topics: what the worker handles; p_slots: at most so many of each topic (NULL = no bound of its own);
-- p_limit and p_bytes bound the batch: it ends with the message that reaches p_bytes; p_lock_for: for this claim instead of the topic's,
-- at most 7 days.
-- p_after_topic and p_after_channels ({"topic": "channel"}): where the last claim ended. The walk goes round from there, so that a
-- flood in one topic or channel delays the others by one batch at most.
-- Within a topic (and within a channel) lower priority numbers go first, then the longest available.
-- Locks: the rows, skipping those that others hold. Result: the messages in the order of the walk, each with the claim_id that
-- every settle must show. JSON travels as text: a value that a client cannot decode then harms one message, not the batch.
CREATE OR REPLACE FUNCTION messages.claim(
  p_worker         text,
  p_topics         text[],
  p_limit          integer,
  p_slots          integer[] DEFAULT NULL,
  p_bytes          bigint    DEFAULT 16777216,
  p_lock_for       interval  DEFAULT NULL,
  p_after_topic    text      DEFAULT NULL,
  p_after_channels jsonb     DEFAULT NULL
)
RETURNS SETOF messages.claimed
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
  v_now     timestamptz := messages.now();
  v_claim   bigint      := nextval('messages.claim_id');
  v_left    integer     := least(p_limit, 10000);
  v_start   text        := coalesce(p_after_topic, '');
  v_wrapped boolean     := v_start = '';
  v_topic   text;
  v_room    integer;
  v_took    integer;
BEGIN
  IF p_worker IS NULL OR p_topics IS NULL OR p_limit IS NULL THEN
    RAISE EXCEPTION 'claim needs a worker, its topics and a limit' USING ERRCODE = '22004';
  END IF;
  -- Not left to the table's CHECK: its error would show the row with its payload.
  IF p_lock_for NOT BETWEEN '0' AND '7 days' THEN
    RAISE EXCEPTION 'lock_for of a claim is %', p_lock_for USING ERRCODE = '22023', HINT = 'use an interval from 0 to 7 days';
  END IF;
  -- A function that returns rows can return nothing beside them: what the walk may still hand out is a setting of the transaction.
  PERFORM set_config('messages.bytes_left', coalesce(p_bytes, 16777216)::text, true);
  v_topic := messages.next_topic(p_topics, v_start);
  LOOP
    IF v_topic IS NULL AND NOT v_wrapped THEN
      v_wrapped := true;
      v_topic := messages.next_topic(p_topics, '');
    END IF;
    EXIT WHEN v_topic IS NULL OR v_left <= 0 OR current_setting('messages.bytes_left')::bigint <= 0
      OR (v_wrapped AND v_start <> '' AND v_topic COLLATE "C" > v_start COLLATE "C");
    v_room := least(v_left, coalesce(p_slots[array_position(p_topics, v_topic)], v_left));

    -- Odd claims begin with the channels, even ones without: neither kind shuts the other out.
    IF v_claim % 2 = 0 THEN
      RETURN QUERY SELECT * FROM messages.claim_topic(v_claim, p_worker, v_now, v_topic, v_room, p_lock_for);
      GET DIAGNOSTICS v_took = ROW_COUNT;
      v_room := v_room - v_took;
      v_left := v_left - v_took;
    END IF;
    RETURN QUERY SELECT * FROM messages.claim_channels(
      v_claim, p_worker, v_now, v_topic, p_after_channels ->> v_topic, v_room, p_lock_for);
    GET DIAGNOSTICS v_took = ROW_COUNT;
    v_room := v_room - v_took;
    v_left := v_left - v_took;
    IF v_claim % 2 = 1 THEN
      RETURN QUERY SELECT * FROM messages.claim_topic(v_claim, p_worker, v_now, v_topic, v_room, p_lock_for);
      GET DIAGNOSTICS v_took = ROW_COUNT;
      v_left := v_left - v_took;
    END IF;
    v_topic := messages.next_topic(p_topics, v_topic);
  END LOOP;
END
$$;
