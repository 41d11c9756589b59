-- Charge the publish_rate of topics for what a statement inserted, and refuse the statement if it exceeds the rate.
-- Called by: the trigger apply_publish_policies, once per statement. p_topics in ascending order, p_counts: how many
-- messages. GCRA: a quiet topic saves up to its burst, never more. A rollback undoes the charge.
-- Locks: the topics' rows of rate in their order, until the transaction ends: publishers to such a topic take turns.
-- They are waited for as lock_wait_limit says; 55P03 after that.
CREATE OR REPLACE FUNCTION messages.charge_publish_rate(p_topics text[], p_counts bigint[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_timeout text := current_setting('lock_timeout');
  v_each record;
  v_free timestamptz;
  v_now  timestamptz;
  v_wait interval;
BEGIN
  FOR v_each IN
    SELECT e.topic, e.count, a.publish_rate AS rate, a.burst
    FROM unnest(p_topics, p_counts) AS e (topic, count)
    CROSS JOIN LATERAL messages.publish_policy(e.topic) AS a
    WHERE a.publish_rate IS NOT NULL AND e.count > 0
  LOOP
    IF v_each.count > v_each.burst THEN
      RAISE EXCEPTION 'publish_rate of topic % is % a second with a burst of %: % at once never fit',
        v_each.topic, v_each.rate, v_each.burst, v_each.count
        USING ERRCODE = 'PGR02', HINT = 'publish fewer in one statement, or raise burst';
    END IF;
    PERFORM set_config('lock_timeout', messages.lock_wait_limit(), true);
    LOOP
      SELECT r.free_at INTO v_free
      FROM messages.rate AS r WHERE r.kind = 'publish' AND r.topic = v_each.topic AND r.channel = ''
      FOR NO KEY UPDATE;
      EXIT WHEN FOUND;
      INSERT INTO messages.rate (kind, topic, free_at) VALUES ('publish', v_each.topic, 'epoch') ON CONFLICT DO NOTHING;
    END LOOP;
    PERFORM set_config('lock_timeout', v_timeout, true);
    v_now := messages.now();
    v_wait := greatest(v_free, v_now) - v_now - make_interval(secs => (v_each.burst - v_each.count) / v_each.rate);
    IF v_wait > '0' THEN
      RAISE EXCEPTION 'publish_rate of topic % is % a second: this is too soon', v_each.topic, v_each.rate
        USING ERRCODE = 'PGR02', HINT = format('try again in %s s', round(extract(epoch FROM v_wait), 3));
    END IF;
    PERFORM messages.charge_rate('publish', v_each.topic, v_each.rate, v_each.count::integer, v_now);
  END LOOP;
END
$$;
