-- Create the next notification of a sink, if one is due: about one group, or about all due groups if there are more
-- than "digest_over".
-- Called by: claim_delivery, which holds the row of the sink, when every earlier message is settled. Locks: the
-- incidents it tells of.
-- Result: seconds until a notification may be due, NULL = unknown; 0 = one was written. It is written and counted in
-- one transaction: from then on it is repeated unchanged until it is delivered.
CREATE OR REPLACE FUNCTION messages.create_delivery(p_sink text, p_rules jsonb)
RETURNS double precision
LANGUAGE plpgsql
AS $$
DECLARE
  v_now     timestamptz := messages.now();
  v_after   interval := messages.rule_interval(p_rules, 'escalate_after');
  v_patient boolean := p_rules -> 'escalate_after' IS NOT NULL OR p_rules -> 'escalate_count' IS NOT NULL;
  v_step    interval := interval '1 minute' / (p_rules ->> 'rate_limit_per_minute')::integer;
  v_paced   timestamptz := greatest(v_now, (SELECT s.paced_at FROM messages.alert_sink AS s WHERE s.name = p_sink));
  v_due     text[];
BEGIN
  IF v_patient THEN
    UPDATE messages.alert_incident AS i
    SET escalated_at = v_now, due_at = coalesce(i.due_at, v_now)
    WHERE i.sink = p_sink AND i.escalated_at IS NULL AND i.state = 'firing'
      AND (i.count >= (p_rules ->> 'escalate_count')::bigint
        OR CASE WHEN i.kind = 'dead_message' THEN i.last_at ELSE v_now END - i.first_at >= v_after);
  END IF;
  -- Silences may end before their time: looked at again soon.
  UPDATE messages.alert_incident AS i
  SET due_at = v_now + interval '5 s'
  WHERE i.sink = p_sink AND i.due_at <= v_now
    AND messages.silence_of(i.kind, i.topic, i.error_fingerprint) IS NOT NULL;
  PERFORM messages.hold_explained(p_sink, v_patient);

  v_due := ARRAY(
    SELECT i.grouped FROM messages.alert_incident AS i
    WHERE i.sink = p_sink AND i.due_at <= v_now AND (NOT v_patient OR i.escalated_at IS NOT NULL)
    ORDER BY i.state <> 'firing', messages.alert_severity(i.kind), i.due_at, i.first_alert_id
    LIMIT (p_rules ->> 'most')::integer);
  IF cardinality(v_due) = 0 THEN
    RETURN (
      SELECT extract(
        epoch FROM min(
          CASE WHEN v_patient AND i.escalated_at IS NULL THEN i.first_at + v_after ELSE i.due_at END
        ) - v_now)
      FROM messages.alert_incident AS i
      WHERE i.sink = p_sink AND i.due_at IS NOT NULL
        AND (
          NOT v_patient OR i.escalated_at IS NOT NULL OR (i.kind <> 'dead_message' AND i.state = 'firing')
        ))::double precision;
  END IF;
  -- Each message moves the pace on by its share of a minute; a minute's worth may go at once.
  IF v_paced + v_step > v_now + interval '1 minute' THEN
    RETURN extract(epoch FROM v_paced + v_step - interval '1 minute' - v_now)::double precision;
  END IF;
  UPDATE messages.alert_sink AS s SET paced_at = v_paced + v_step WHERE s.name = p_sink;
  IF cardinality(v_due) <= (p_rules ->> 'digest_over')::integer THEN
    v_due := v_due[1:1];
  END IF;

  WITH reported AS (
    SELECT i.*, messages.alert_severity(i.kind) AS severity, c.count AS messages, coalesce(c.since, i.first_at) AS since
    FROM messages.alert_incident AS i
    LEFT JOIN messages.condition AS c ON c.kind = i.kind AND c.topic = coalesce(i.topic, '') AND c.ended_at IS NULL
    WHERE i.sink = p_sink AND i.grouped = ANY (v_due)
  ), shown AS (
    SELECT t.*, CASE WHEN t.kind IN ('breaker', 'dead_rate')
             THEN messages.held_errors(p_sink, t.topic, t.notified_at) END AS errors
    FROM reported AS t
    ORDER BY t.state <> 'firing', t.severity, t.pending DESC, t.first_alert_id LIMIT 100
  )
  INSERT INTO messages.alert_delivery (sink, message, rules, grouped, first_alert_id, last_alert_id, created_at)
  SELECT
    p_sink,
    jsonb_build_object(
      'status', CASE WHEN bool_or(t.state = 'firing') THEN 'firing' ELSE 'resolved' END,
      'count', sum(t.pending),
      'group_count', count(*),
      'groups', (
        SELECT jsonb_agg(jsonb_build_object(
          'group', g.grouped, 'kind', g.kind, 'severity', g.severity, 'topic', g.topic, 'result', g.result,
          'fingerprint', g.error_fingerprint,
          'status', g.state, 'count', g.pending, 'total', g.count, 'messages', g.messages, 'since', g.since,
          'first_at', g.first_at, 'last_at', g.last_at,
          'first_message_id', g.first_message_id, 'last_message_id', g.last_message_id, 'error', g.sample_error,
          'errors', coalesce(g.errors, '[]'), 'fix', g.fix,
          'nth', g.notifications + 1, 'escalated', g.escalated_at IS NOT NULL)
            ORDER BY g.state <> 'firing', g.severity, g.pending DESC, g.first_alert_id)
        FROM shown AS g)),
    jsonb_strip_nulls(
      jsonb_build_object('group_by', p_rules -> 'group_by', 'kinds', p_rules -> 'kinds', 'topics', p_rules -> 'topics')
    ),
    v_due, min(t.first_alert_id), max(t.last_alert_id), v_now
  FROM reported AS t;

  UPDATE messages.alert_incident AS i
  SET pending = 0, notifications = i.notifications + 1, notified_at = v_now,
      state = CASE WHEN i.state = 'resolved' THEN 'over' ELSE i.state END,
      due_at = CASE WHEN i.state = 'firing' AND i.kind <> 'dead_message'
        THEN v_now + nullif(messages.rule_interval(p_rules, 'repeat_interval'), '0') END
  WHERE i.sink = p_sink AND i.grouped = ANY (v_due);
  RETURN 0;
END
$$;

-- Postpone what is due about a problem that a wider one explains, if the sink is told of that: of one cause it is told
-- once. It is looked at again soon, and sent when the wider problem is over. A group of dead messages of which all were
-- redriven before its message is due is over. p_patient: whether the sink is told only of what was escalated. Groups of
-- several topics are not explained by the problem of one.
-- Called by: create_delivery. Locks: the incidents that it changes.
CREATE OR REPLACE FUNCTION messages.hold_explained(p_sink text, p_patient boolean)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_now timestamptz := messages.now();
BEGIN
  IF NOT EXISTS (
    SELECT FROM messages.alert_incident AS i
    WHERE i.sink = p_sink AND i.due_at <= v_now AND i.state = 'firing'
      AND i.kind IN ('no_worker', 'backlog', 'dead_rate', 'dead_message')
  ) THEN
    RETURN;
  END IF;
  WITH told AS MATERIALIZED (
    SELECT e.kind, e.topic
    FROM messages.explained_conditions() AS e
    JOIN messages.alert_incident AS c
      ON c.sink = p_sink AND c.kind = e.cause AND c.topic IS NOT DISTINCT FROM e.topic AND c.state = 'firing'
      AND (NOT p_patient OR c.escalated_at IS NOT NULL)
  ), due AS MATERIALIZED (
    SELECT i.grouped, i.kind, i.topic, i.kind = 'dead_message' AND messages.redriven_at(
             i.topic, i.result, i.error_fingerprint, i.first_at, i.last_message_id) IS NOT NULL AS is_over
    FROM messages.alert_incident AS i
    WHERE i.sink = p_sink AND i.due_at <= v_now AND i.state = 'firing'
  ), held AS MATERIALIZED (
    SELECT i.* FROM due AS i
    -- A redrive may end the wider problem and the group at the same moment.
    WHERE i.is_over OR EXISTS (SELECT FROM told AS t WHERE t.kind = i.kind AND coalesce(t.topic, i.topic) = i.topic)
  )
  UPDATE messages.alert_incident AS i
  SET state = CASE WHEN h.is_over THEN 'over' ELSE i.state END,
      silenced = i.silenced + CASE WHEN h.is_over THEN i.pending ELSE 0 END,
      pending = CASE WHEN h.is_over THEN 0 ELSE i.pending END,
      due_at = CASE WHEN NOT h.is_over THEN v_now + interval '5 s' END
  FROM held AS h
  WHERE i.sink = p_sink AND i.grouped = h.grouped;
END
$$;

-- List the errors of the dead messages of a topic that a wider problem explains, for its message: the sink is told of
-- them in no other. p_told_at: when the last message about the problem was written; NULL = there was none. Groups that
-- began later are new, and come first; then the largest. At most 5.
-- Called by: create_delivery. Locks: nothing. Result: an array of objects with error, count and is_new, or NULL.
CREATE OR REPLACE FUNCTION messages.held_errors(p_sink text, p_topic text, p_told_at timestamptz)
RETURNS jsonb
LANGUAGE sql
STABLE
AS $$
  SELECT jsonb_agg(jsonb_build_object('error', e.sample_error, 'count', e.count, 'is_new', e.is_new)
           ORDER BY e.is_new DESC, e.count DESC, e.grouped)
  FROM (
    SELECT i.sample_error, i.count, coalesce(i.first_at > p_told_at, false) AS is_new, i.grouped
    FROM messages.alert_incident AS i
    WHERE i.sink = p_sink AND i.topic = p_topic COLLATE "C" AND i.kind = 'dead_message' AND i.state = 'firing'
    ORDER BY coalesce(i.first_at > p_told_at, false) DESC, i.count DESC, i.grouped
    LIMIT 5
  ) AS e
$$;
