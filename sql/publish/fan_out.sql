-- Copy what was published to topics with subscribers into the subscribers' topics, as ordinary messages that name the
-- original in origin_id.
-- Called by: the trigger apply_publish_policies, in the publisher's transaction: all of it is published or nothing.
-- p_ids, p_topics: what was published. A copy has everything that describes the message, including its delay and its
-- key; what happens if the key is already waiting is the publisher's on_conflict (error, unless published by
-- messages.publish). The policies of the subscriber's topic hold for it. The message itself is archived as a success
-- with output {"fanned_out": {"topic": id}} (null: no copy was made there), unless its topic subscribes to itself: then
-- its own handlers process it too.
-- Locks: what the INSERT of the copies locks, in the order of topics and keys.
CREATE OR REPLACE FUNCTION messages.fan_out(p_ids bigint[], p_topics text[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_on_conflict text := coalesce(nullif(current_setting('messages.on_conflict', true), ''), 'error');
  v_each        record;
  v_copy        messages.message;
  v_published   bigint;
  v_origins     bigint[];
  v_topics      text[];
  v_copies      bigint[];
  v_done        bigint[];
  v_outputs     jsonb[];
BEGIN
  WITH copied AS (
    INSERT INTO messages.message AS c
      (topic, channel, priority, payload, body, headers, available_at, expires_at, max_attempts, timeout, backoff,
       retention, origin_id, batch_id)
    SELECT s.subscriber, m.channel, m.priority, m.payload, m.body, m.headers, m.available_at, m.expires_at,
           m.max_attempts, m.timeout, m.backoff, m.retention, m.id, m.batch_id
    FROM unnest(p_ids) AS source (id)
    JOIN messages.message AS m ON m.id = source.id
    JOIN LATERAL messages.subscribers(m.topic) AS s ON s.subscriber <> m.topic
    WHERE m.key IS NULL
    ORDER BY s.subscriber, m.id
    RETURNING c.origin_id, c.topic, c.id
  )
  SELECT array_agg(c.origin_id), array_agg(c.topic), array_agg(c.id) INTO v_origins, v_topics, v_copies
  FROM copied AS c;

  -- The ids are drawn in the order of the originals, and the keys are taken in their own: two publishers with the same
  -- keys do not deadlock.
  FOR v_each IN
    SELECT d.source, d.subscriber, d.id
    FROM (
      SELECT o.source, o.subscriber, nextval('messages.message_id_seq') AS id
      FROM (
        SELECT m AS source, s.subscriber
        FROM unnest(p_ids) AS source (id)
        JOIN messages.message AS m ON m.id = source.id
        JOIN LATERAL messages.subscribers(m.topic) AS s ON s.subscriber <> m.topic
        WHERE m.key IS NOT NULL
        ORDER BY s.subscriber, m.id
      ) AS o
      OFFSET 0
    ) AS d
    ORDER BY d.subscriber, (d.source).key, d.id
  LOOP
    v_copy := v_each.source;
    v_copy.origin_id := v_copy.id;
    v_copy.id := v_each.id;
    v_copy.topic := v_each.subscriber;
    SELECT p.id INTO v_published FROM messages.publish_with_key(v_copy, v_on_conflict) AS p;
    v_origins := v_origins || v_copy.origin_id;
    v_topics := v_topics || v_copy.topic::text;
    v_copies := v_copies || v_published;
  END LOOP;

  -- Every subscriber is in the output, also one whose topic took no copy (NULL). A join with the copies would be one by
  -- nested loops.
  SELECT array_agg(o.origin_id), array_agg(o.output)
  INTO v_done, v_outputs
  FROM (
    SELECT c.origin_id, jsonb_build_object('fanned_out', jsonb_object_agg(c.topic, c.id)) AS output
    FROM (
      SELECT u.origin_id, u.topic, max(u.id) AS id, bool_or(u.is_kept) AS is_kept
      FROM (
        SELECT e.id AS origin_id, s.subscriber::text AS topic, NULL::bigint AS id, s.subscriber = e.topic AS is_kept
        FROM unnest(p_ids, p_topics) AS e (id, topic)
        CROSS JOIN LATERAL messages.subscribers(e.topic) AS s
        UNION ALL
        SELECT t.*, false FROM unnest(v_origins, v_topics, v_copies) AS t
      ) AS u
      GROUP BY u.origin_id, u.topic
    ) AS c
    GROUP BY c.origin_id
    HAVING NOT bool_or(c.is_kept)
  ) AS o;
  IF v_done IS NOT NULL THEN
    PERFORM messages.archive(
      v_done, NULL, 'success', NULL, v_outputs, 'fan-out', true);
  END IF;
END
$$;
