-- Signals an event to a message: its handler waits for it by `ctx.wait_for_event`, now or later. A message that waits
-- for this event becomes available at once. A signal that comes before its wait is kept. Each signal is delivered
-- once: the first wait of the handler for a name gets the first signal of this name, its second wait the second, and
-- every later attempt gets the same. The signals of a message are deleted and passed on as the steps of
-- `messages.save_step` are.
--
-- Arguments: `p_name`: 1 to 180 printable characters. `p_payload`: what the handler gets, at most 1 MiB as text; NULL
-- is the JSON null. `p_number`: signals only if fewer than this many signals of this name have come: with 1 only the
-- first counts, however often it is repeated; NULL = in any case.
-- Result: the id of the message; NULL = it has ended or was never published, and nothing was changed.
-- Errors: 22004 without an id; 22023 for an invalid name, payload or number; for a payload that an
-- [encrypted](encryption.md) message would get unencrypted; and if the message has 1000 signals, or 16 MiB of them.
-- 25001 above READ COMMITTED, where it could not see that the message waits. 55P03 if another transaction
-- that signals the same message stays open for longer than `lock_timeout` (10 s if that is not set).
-- Locks: other signals for the same message, until the transaction ends. If the message waits for this event, also
-- what `messages.retry_now` locks. It locks no message that runs: neither its handler nor its settle waits for this
-- transaction. Commit soon: the message continues after the commit.
-- Repeat: adds another signal, which is kept for the next wait; give `p_number` to prevent that.
-- Called by: publishers, workers, operators, and the web server.
CREATE OR REPLACE FUNCTION messages.signal(
  p_id bigint, p_name text, p_payload jsonb DEFAULT NULL, p_number integer DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_bytes   bigint := messages.jsonb_text_bytes(p_payload);
  v_message record;
  v_kept    record;
BEGIN
  PERFORM messages.check_event_name(p_name);
  IF p_id IS NULL THEN
    RAISE EXCEPTION 'signal needs the id of a message' USING ERRCODE = '22004';
  END IF;
  IF v_bytes > 1048576 THEN
    RAISE EXCEPTION 'payload of the signal "%" has % bytes', p_name, v_bytes
      USING ERRCODE = '22023',
        HINT = 'use JSON of at most 1048576 bytes; keep what is larger elsewhere and signal where it is';
  END IF;
  IF p_number < 1 THEN
    RAISE EXCEPTION 'number of the signal "%" is %', p_name, p_number
      USING ERRCODE = '22023', HINT = 'use 1 or more, or NULL';
  END IF;
  IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RAISE EXCEPTION 'signal needs READ COMMITTED: this transaction cannot see whether message % waits', p_id
      USING ERRCODE = '25001', HINT = 'signal in a transaction of its own';
  END IF;
  -- Without a message there is nothing to lock.
  IF (SELECT true FROM messages.message AS m WHERE m.id = p_id) IS NULL THEN
    RETURN NULL;
  END IF;
  IF NOT messages.lock_mutex('event', p_id::text, messages.lock_wait_limit()) THEN
    RAISE EXCEPTION 'another transaction has signalled message % and stays open', p_id
      USING ERRCODE = '55P03', HINT = 'try again; SELECT * FROM messages.doctor() names who it is';
  END IF;

  -- Read after the lock: what wait_for_event wrote before is committed, and seen. What it writes later sees the
  -- signal.
  SELECT m.topic::text AS topic, m.attempts,
         m.claim_id IS NULL AND m.history -> -1 ->> 'outcome' = 'waiting'
           AND w.result ->> 'name' = p_name AS is_waiting,
         m.headers ? 'pgrouse-encrypted-by' OR substring(m.body FOR 4) = E'\\x93504752' AS is_encrypted
  INTO v_message
  FROM messages.message AS m
  LEFT JOIN messages.step AS w ON w.message_id = m.id AND w.name = 'event:wait'
  WHERE m.id = p_id;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF v_message.is_encrypted AND p_payload <> 'null' THEN
    RAISE EXCEPTION 'message % is encrypted, the payload of a signal would not be', p_id
      USING ERRCODE = '22023', HINT = 'signal without a payload, and let the handler read what it needs';
  END IF;

  SELECT count(*) AS taken, coalesce(sum(octet_length(s.result::text)), 0) AS bytes,
         count(n.number) AS signals, coalesce(max(n.number), 0) AS last
  INTO v_kept
  FROM messages.step AS s
  CROSS JOIN LATERAL (SELECT messages.event_number(s.name, p_name) AS number) AS n
  WHERE s.message_id = p_id AND s.name LIKE 'event:%';
  IF v_kept.signals >= p_number THEN
    RETURN p_id;
  END IF;
  IF v_kept.taken >= 1000 OR v_kept.bytes + v_bytes > 16777216 THEN
    RAISE EXCEPTION 'message % has % signals, with % bytes', p_id, v_kept.taken, v_kept.bytes
      USING ERRCODE = '22023', HINT = 'a message takes 1000 signals, and 16777216 bytes of signals';
  END IF;
  INSERT INTO messages.step (message_id, name, result, attempt)
  VALUES (
    p_id, 'event:' || v_kept.last + 1 || ':' || p_name, jsonb_build_object('payload', coalesce(p_payload, 'null')),
    v_message.attempts);
  PERFORM messages.raise_awaited_flag();
  IF v_message.is_waiting THEN
    PERFORM messages.make_available(ARRAY[p_id]);
  END IF;
  PERFORM messages.audit_messages('signal', ARRAY[v_message.topic], ARRAY[p_id], jsonb_build_object('event', p_name));
  RETURN p_id;
END
$$;
