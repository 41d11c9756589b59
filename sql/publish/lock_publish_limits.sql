-- Lock the counters and rates of topics, and of all topics that their messages are copied to, in one order.
-- Called by: the trigger apply_publish_policies, where a topic of the statement has subscribers, before the rows are counted: two
-- publishers that reach the same topics in different ways, one of them by a subscription, must not deadlock.
-- Locks: the rows of depth, then those of rate, each in the order of its key, until the transaction ends; waited for as lock_wait_limit
-- says. A row that does not exist yet is left out: it is created once.
CREATE OR REPLACE FUNCTION messages.lock_publish_limits(p_topics text[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_timeout text := current_setting('lock_timeout');
  v_topics  text[];
BEGIN
  WITH RECURSIVE reached AS (
    SELECT p.topic COLLATE "C" AS topic FROM unnest(p_topics) AS p (topic)
    UNION
    SELECT s.subscriber COLLATE "C" FROM reached AS r JOIN messages.subscription AS s ON s.topic = r.topic
  )
  SELECT array_agg(r.topic) INTO v_topics FROM reached AS r;
  PERFORM set_config('lock_timeout', messages.lock_wait_limit(), true);
  PERFORM FROM messages.depth AS d WHERE d.topic = ANY (v_topics) ORDER BY d.topic FOR NO KEY UPDATE;
  PERFORM FROM messages.rate AS r
  WHERE r.kind = 'publish' AND r.topic = ANY (v_topics) AND r.channel = '' ORDER BY r.topic FOR NO KEY UPDATE;
  PERFORM set_config('lock_timeout', v_timeout, true);
END
$$;
