-- Notifies `new_message` for each topic that a row of `messages.sleeper` asks for, if its worker would otherwise look
-- only after the first message is due, and for those with `notify = 'always'`; not for topics with `notify = 'off'`.
-- Above READ COMMITTED it notifies as if a worker were armed, because the snapshot may be older than its flag. It runs
-- with the rights of its caller.
--
-- Arguments: `p_due`: when the first message of each topic is due; `p_id`: the message; NULL = there was more than one.
-- Errors: none.
-- Locks: PostgreSQL's own lock for NOTIFY at the commit, if something was sent.
-- Called by: the trigger new_message, while a worker may be armed; the trigger apply_publish_policies, with topics that
-- may have `notify = 'always'`; notify_topics.
CREATE OR REPLACE FUNCTION messages.notify_inserted(p_topics text[], p_due timestamptz[], p_id bigint)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_blind    boolean := current_setting('transaction_isolation') <> 'read committed';
  v_notify   text;
  v_payloads text[];
BEGIN
  -- A loop, not a query over the arrays: PostgreSQL would plan that again for each call, which takes five times as long
  -- as this.
  FOR v_nth IN 1 .. coalesce(cardinality(p_topics), 0) LOOP
    v_notify := coalesce(
      (SELECT t.notify FROM messages.topic AS t WHERE t.topic = p_topics[v_nth]),
      (SELECT d.notify FROM messages.inherited_policy AS d
       WHERE d.topic = messages.inherits_from(p_topics[v_nth])));
    IF v_notify = 'always' OR v_notify = 'auto' AND (v_blind OR EXISTS (
      SELECT FROM messages.sleeper AS s
      WHERE s.armed_until > clock_timestamp()
        AND s.next_look_at > p_due[v_nth]
        AND (
          s.topics IS NULL OR p_topics[v_nth] = ANY (s.topics)
          OR s.patterns IS NOT NULL AND messages.patterns_of(p_topics[v_nth]) && s.patterns))) THEN
      v_payloads := array_append(v_payloads, coalesce(p_id::text, p_topics[v_nth]));
    END IF;
  END LOOP;
  IF v_payloads IS NOT NULL THEN
    PERFORM messages.notify('new_message', v_payloads);
  END IF;
END
$$;
