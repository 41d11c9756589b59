-- Apply the policies of topics to published messages: notify, count them, charge rates, hold keys, and make the copies
-- for subscribers. It runs once per statement, so that a COPY of a hundred thousand messages changes each counter once.
-- It is not called while no topic of the database uses such a policy and there is no batch, and does nothing if none of
-- the statement may. What comes into batches is counted.
-- Errors: PGR01 the topic is full, PGR02 its rate is exceeded, 23505 the key is held, PGR09 the batch accepts nothing.
-- Locks: rows of depth, then of rate, then of held_key, each in the order of its key, until the transaction ends; where
-- there are subscribers those of their topics with them (lock_publish_limits). (Topics that drop what does not fit were
-- locked by the trigger admit_message, in the order of the rows.)
CREATE OR REPLACE FUNCTION messages.apply_publish_policies()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  -- Read once: a COPY has thousands of rows. A subquery that is asked once takes longer than both sequences.
  v_bits     bigint := pg_sequence_last_value('messages.policy_topic_bits')
    | pg_sequence_last_value('messages.always_topic_bits');
  v_limited  text[];
  v_counts   bigint[];
  v_new      bigint[];
  v_rated    text[];
  v_charged  bigint[];
  v_is_keyed boolean;
  v_ids      bigint[];
  v_topics   text[];
  v_all      text[];
  v_copied   boolean;
BEGIN
  IF pg_sequence_last_value('messages.batch_flag') > 1 THEN
    PERFORM messages.add_to_batches(array_agg(b.batch_id), array_agg(b.shard), array_agg(b.count))
    FROM (
      SELECT f.batch_id, messages.batch_shard_of(f.id) AS shard, count(*) AS count
      FROM fresh AS f
      WHERE f.batch_id IS NOT NULL AND f.redriven_from IS NULL
      GROUP BY 1, 2
    ) AS b
    HAVING count(*) > 0;
  END IF;
  -- One condition, since each costs a statement of other topics as much as this look at its rows. A statement whose
  -- rows were all dropped has none left, and ends here what depth_left counted for it.
  IF NOT EXISTS (SELECT FROM fresh AS f WHERE v_bits & messages.policy_topic_bit(f.topic) IS DISTINCT FROM 0)
    AND coalesce(current_setting('messages.depth_left', true), '') = '' THEN
    RETURN NULL;
  END IF;
  PERFORM set_config('messages.depth_left', '', true);
  -- For topics with notify = 'always'. Where a worker sleeps, new_message sends the same, and PostgreSQL drops one of
  -- the two.
  IF pg_sequence_last_value('messages.always_topic_bits') IS DISTINCT FROM 1 THEN
    PERFORM messages.notify_inserted(
      array_agg(t.topic) FILTER (WHERE t.always), array_agg(t.due) FILTER (WHERE t.always),
      CASE WHEN sum(t.count) = 1 THEN min(t.id) END)
    FROM (
      SELECT f.topic::text AS topic, min(f.available_at) AS due, min(f.id) AS id, count(*) AS count,
             pg_sequence_last_value('messages.always_topic_bits') & messages.policy_topic_bit(f.topic)
               IS DISTINCT FROM 0 AS always
      FROM fresh AS f
      GROUP BY f.topic
    ) AS t;
  END IF;
  SELECT array_agg(c.topic ORDER BY c.topic) FILTER (WHERE a.max_depth IS NOT NULL),
         array_agg(c.all ORDER BY c.topic) FILTER (WHERE a.max_depth IS NOT NULL),
         array_agg(c.new ORDER BY c.topic) FILTER (WHERE a.max_depth IS NOT NULL),
         array_agg(c.topic ORDER BY c.topic) FILTER (WHERE a.publish_rate IS NOT NULL),
         array_agg(c.new ORDER BY c.topic) FILTER (WHERE a.publish_rate IS NOT NULL),
         bool_or(a.key_ttl IS NOT NULL AND c.is_keyed),
         array_agg(c.topic::text),
         bool_or(
           c.new > 0 AND EXISTS (
             SELECT FROM messages.subscription AS s WHERE s.topic = ANY (messages.names_of(c.topic))))
  INTO v_limited, v_counts, v_new, v_rated, v_charged, v_is_keyed, v_all, v_copied
  FROM (
    SELECT f.topic, count(*) AS all, count(*) FILTER (WHERE f.redriven_from IS NULL AND f.dlq_moved_at IS NULL) AS new,
           bool_or(f.key IS NOT NULL) AS is_keyed
    FROM fresh AS f
    GROUP BY f.topic
  ) AS c
  CROSS JOIN LATERAL messages.publish_policy(c.topic) AS a;

  IF v_copied THEN
    PERFORM messages.lock_publish_limits(v_all);
  END IF;
  IF v_limited IS NOT NULL THEN
    PERFORM messages.add_depth(v_limited, v_counts, v_new);
  END IF;
  IF v_rated IS NOT NULL THEN
    PERFORM messages.charge_publish_rate(v_rated, v_charged);
  END IF;
  IF v_is_keyed THEN
    PERFORM messages.hold_keys(
      array_agg(f.id), array_agg(f.topic::text), array_agg(f.key::text),
      array_agg(f.redriven_from IS NOT NULL OR f.dlq_moved_at IS NOT NULL))
    FROM fresh AS f
    WHERE f.key IS NOT NULL;
  END IF;

  -- A redrive of one subscriber's, or of the topic's own, is not for the others.
  SELECT array_agg(f.id), array_agg(f.topic)
  INTO v_ids, v_topics
  FROM fresh AS f
  WHERE f.redriven_from IS NULL AND f.dlq_moved_at IS NULL
    AND EXISTS (SELECT FROM messages.subscription AS s WHERE s.topic = ANY (messages.names_of(f.topic)));
  IF v_ids IS NOT NULL THEN
    PERFORM messages.fan_out(v_ids, v_topics);
  END IF;
  RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER apply_publish_policies
AFTER INSERT ON messages.message
REFERENCING NEW TABLE AS fresh
FOR EACH STATEMENT
WHEN (
  pg_sequence_last_value('messages.policy_topic_bits'::regclass) IS DISTINCT FROM 1
  OR pg_sequence_last_value('messages.always_topic_bits'::regclass) IS DISTINCT FROM 1
  OR pg_sequence_last_value('messages.batch_flag'::regclass) IS DISTINCT FROM 1)
EXECUTE FUNCTION messages.apply_publish_policies();

-- Lock the counters and rates of topics, and of all topics that their messages are copied to, in one order.
-- Called by: the trigger apply_publish_policies, where a topic of the statement has subscribers, before the rows are
-- counted: two publishers that reach the same topics in different ways, one of them by a subscription, must not
-- deadlock.
-- Locks: the rows of depth, then those of rate, each in the order of its key, until the transaction ends; waited for as
-- lock_wait_limit says. A row that does not exist yet is left out: it is created once.
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
    SELECT s.subscriber COLLATE "C" FROM reached AS r CROSS JOIN LATERAL messages.subscribers(r.topic) AS s
  )
  SELECT array_agg(r.topic) INTO v_topics FROM reached AS r;
  PERFORM set_config('lock_timeout', messages.lock_wait_limit(), true);
  PERFORM FROM messages.depth AS d WHERE d.topic = ANY (v_topics) ORDER BY d.topic FOR NO KEY UPDATE;
  PERFORM FROM messages.rate AS r
  WHERE r.kind = 'publish' AND r.topic = ANY (v_topics) AND r.channel = '' ORDER BY r.topic FOR NO KEY UPDATE;
  PERFORM set_config('lock_timeout', v_timeout, true);
END
$$;
