-- Performs the next step of a deliverer: takes new alerts, and returns the one message to send to its sink now. Then
-- call `messages.settle_delivery`.
--
-- Arguments: `p_holder`: the name of the deliverer, unique in the fleet. The first caller holds the sink for `p_hold`,
-- and each further call extends that; another deliverer may take it when that time is over, or at once when the
-- holder's server process is gone. `p_rules`: the rules of the sink, times in seconds: `group_by` (of `topic`,
-- `result`, `fingerprint`), `wait`, `every`, `repeat`, `rate_limit_per_minute`, `digest_over`, `most`; and if it is
-- restricted `on`, `topics`, `after`, `escalate_count`.
-- Result: `held`: another deliverer holds the sink. `id` NULL: there is nothing to send; call again after `wait_s`
-- seconds, or when `dead_message` or `alert` is notified (NULL: only then). Otherwise `message` for the receiver,
-- `attempt`, and the `fence` to settle with.
-- Errors: 55P03 if the rows could not be locked within 5 s.
-- Locks: the sink's row and its incidents, until the transaction ends; never call it in a longer transaction.
-- Repeat: safe: a message that was not settled is returned again, with the same id.
-- Called by: the alerts loop of daemons and `pgrouse alert run`, one per sink.
CREATE OR REPLACE FUNCTION messages.claim_delivery(
  p_sink text, p_type text, p_holder text, p_rules jsonb, p_hold interval,
  OUT held boolean, OUT fence bigint, OUT id uuid, OUT seq bigint, OUT attempt integer, OUT created_at timestamptz,
  OUT message jsonb,
  OUT wait_s double precision
)
LANGUAGE plpgsql
SECURITY DEFINER
SET lock_timeout = '5s'
AS $$
DECLARE
  v_now  timestamptz := messages.now();
  v_sink messages.alert_sink;
  v_head messages.alert_delivery;
BEGIN
  INSERT INTO messages.alert_sink (name, type, first_seen_at) VALUES (p_sink, p_type, v_now) ON CONFLICT DO NOTHING;
  SELECT s.* INTO v_sink FROM messages.alert_sink AS s WHERE s.name = p_sink FOR UPDATE;
  held := v_sink.held_by <> p_holder AND v_sink.held_until > v_now
    AND EXISTS (SELECT FROM pg_stat_activity AS a WHERE a.pid = v_sink.held_backend);
  IF held THEN
    wait_s := extract(epoch FROM v_sink.held_until - v_now)::double precision;
    RETURN;
  END IF;
  held := false;
  UPDATE messages.alert_sink AS s
  SET type = p_type, held_by = p_holder, held_until = v_now + p_hold, held_backend = pg_backend_pid(), seen_at = v_now,
      fence = s.fence + CASE WHEN s.held_by IS DISTINCT FROM p_holder THEN 1 ELSE 0 END
  WHERE s.name = p_sink
  RETURNING s.fence INTO claim_delivery.fence;

  -- Before: a group that was quiet begins again with what is new. After: what ended unheard.
  PERFORM messages.close_incidents(p_sink, p_rules);
  PERFORM messages.group_new_alerts(p_sink, p_rules);
  PERFORM messages.close_incidents(p_sink, p_rules);
  LOOP
    SELECT d.* INTO v_head
    FROM messages.alert_delivery AS d
    WHERE d.sink = p_sink AND d.delivered_at IS NULL AND d.abandoned_at IS NULL
    ORDER BY d.seq LIMIT 1;
    EXIT WHEN FOUND;
    wait_s := messages.create_delivery(p_sink, p_rules);
    IF wait_s IS DISTINCT FROM 0 THEN
      RETURN;
    END IF;
  END LOOP;
  wait_s := greatest(0, extract(epoch FROM v_head.retry_at - v_now))::double precision;
  IF wait_s > 0 THEN
    RETURN;
  END IF;
  -- Counted before it is sent: a message that kills its deliverer must not look like a new one again and again.
  UPDATE messages.alert_delivery AS d SET attempts = d.attempts + 1, retry_at = NULL WHERE d.id = v_head.id;
  id := v_head.id;
  seq := v_head.seq;
  attempt := v_head.attempts + 1;
  created_at := v_head.created_at;
  message := v_head.message;
END
$$;

-- Close what is over for a sink: groups of dead messages with no death for the time between two notifications, and
-- conditions that ended before this sink reported them (because of a silence, or an escalation that did not reach it).
-- Called by: claim_delivery, before and after it takes new alerts. Locks: the incidents it changes. Result: how many
-- ended. What an active silence held back is not reported; its count stays in silenced.
CREATE OR REPLACE FUNCTION messages.close_incidents(p_sink text, p_rules jsonb)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_quiet   timestamptz := messages.now() - messages.rule_interval(p_rules, 'group_interval');
  v_patient boolean := p_rules -> 'escalate_after' IS NOT NULL OR p_rules -> 'escalate_count' IS NOT NULL;
  v_did     bigint;
BEGIN
  UPDATE messages.alert_incident AS i
  SET state = 'over', silenced = i.silenced + i.pending, pending = 0, due_at = NULL
  WHERE i.sink = p_sink
    AND CASE
      WHEN i.kind = 'dead_message' THEN i.state = 'firing' AND i.last_at < v_quiet
      ELSE i.state = 'resolved' AND i.notifications = 0
    END
    AND ((i.kind = 'dead_message' AND i.pending = 0)
      OR (v_patient AND i.escalated_at IS NULL)
      OR messages.silence_of(i.kind, i.topic, i.error_fingerprint) IS NOT NULL);
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_did;
END
$$;
