-- Wake armed sleepers: NOTIFY new_message for each topic with a sleeper that would otherwise look only after its first message is due, and
-- for each topic with notify = 'always'. A topic with notify = 'off' is not notified.
-- Called by: the trigger new_message, with the topics of a statement while a worker may be armed; the trigger apply_publish_policies, with
-- those that may have notify = 'always'; notify_topics. It runs with the rights of its caller, a publisher where that is new_message.
-- p_due: when the first message of each topic is due; p_id: NULL = it was more than one message.
-- Above READ COMMITTED the snapshot may be older than a sleeper's flag: there it notifies as if one were armed.
-- Locks: nothing; PostgreSQL takes its notify lock at commit, only if something was sent.
CREATE OR REPLACE FUNCTION messages.notify_inserted(p_topics text[], p_due timestamptz[], p_id bigint)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_blind    boolean := current_setting('transaction_isolation') <> 'read committed';
  v_notify   text;
  v_payloads text[];
BEGIN
  -- A loop, not a query over the arrays: PostgreSQL would plan that again for each call, which takes five times as long as this.
  FOR v_nth IN 1 .. coalesce(cardinality(p_topics), 0) LOOP
    v_notify := coalesce(
      (SELECT t.notify FROM messages.topic AS t WHERE t.topic = p_topics[v_nth]),
      (SELECT d.notify FROM messages.topic AS d WHERE d.topic = '*'));
    IF v_notify = 'always' OR v_notify = 'auto' AND (v_blind OR EXISTS (
      SELECT FROM messages.sleeper AS s
      WHERE s.armed_until > clock_timestamp()
        AND s.next_look_at > p_due[v_nth]
        AND (s.topics IS NULL OR p_topics[v_nth] = ANY (s.topics)))) THEN
      v_payloads := array_append(v_payloads, coalesce(p_id::text, p_topics[v_nth]));
    END IF;
  END LOOP;
  IF v_payloads IS NOT NULL THEN
    PERFORM messages.notify('new_message', v_payloads);
  END IF;
END
$$;
