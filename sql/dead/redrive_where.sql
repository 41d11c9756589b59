-- Redrives the dead messages that match all filters, the oldest first, at most `p_limit`: `messages.find_dead` and
-- `messages.redrive` in one call. The next call finds messages that stayed dead again, and has to skip those that were
-- redriven. So continue with `p_after`, the `archived_id` of the message that died last, or with `p_since`; then each
-- page costs the same.
--
-- Arguments: the filters and `p_after` are those of `messages.find_dead`, the others those of `messages.redrive`.
-- Result: as `messages.redrive`.
-- Errors: 22023, as `messages.find_dead` and `messages.redrive`.
-- Locks: as `messages.redrive`.
-- Repeat: safe.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.redrive_where(
  p_topic       text             DEFAULT NULL,
  p_result      text             DEFAULT NULL,
  p_fingerprint text             DEFAULT NULL,
  p_since       timestamptz      DEFAULT NULL,
  p_until       timestamptz      DEFAULT NULL,
  p_error       text             DEFAULT NULL,
  p_limit       integer          DEFAULT 1000,
  p_rate        double precision DEFAULT NULL,
  p_delay       interval         DEFAULT '0',
  p_force       boolean          DEFAULT false,
  p_after       bigint           DEFAULT NULL
)
RETURNS TABLE (archived_id bigint, message_id bigint, outcome text)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids      bigint[];
  v_new      bigint[];
  v_outcomes text[];
BEGIN
  SELECT array_agg(b.archived_id), array_agg(b.message_id), array_agg(b.outcome)
  INTO v_ids, v_new, v_outcomes
  FROM messages.redrive_rows(
    ARRAY(
      SELECT f.id FROM messages.find_dead(
        p_topic, p_result, p_fingerprint, p_since, p_until, p_error, p_limit, p_after
      ) AS f),
    NULL, p_rate, p_delay, p_force) AS b;
  PERFORM messages.audit_redrive('redrive_where', v_ids, v_new, v_outcomes, jsonb_build_object(
    'filter', jsonb_strip_nulls(jsonb_build_object(
      'topic', p_topic, 'result', p_result, 'fingerprint', p_fingerprint, 'since', p_since, 'until', p_until, 'error',
      left(p_error, 200))),
    'rate', p_rate, 'delay', nullif(p_delay, '0'), 'force', nullif(p_force, false)));
  RETURN QUERY SELECT b.* FROM unnest(v_ids, v_new, v_outcomes) AS b (archived_id, message_id, outcome);
END
$$;
