-- Publishes messages again that succeeded in a period, page by page, in the order in which they were first published.
-- Each becomes a new message with the same topic, channel, priority, contents, headers, `max_attempts`, `timeout`,
-- `backoff` and `retention`, and `redriven_from`. It has no key, so that no message is left out because of its key, and
-- does not count as a redrive: you may replay a success any number of times. Messages that were only fanned out are
-- left out; replay the topics of the subscribers.
--
-- Arguments: `p_from` (inclusive), `p_to` (exclusive): when they succeeded. A `p_to` in the future also finds the
-- replayed messages. `p_after`: the last `archived_id` of the previous page. `p_rate`, `p_delay`: as for
-- `messages.redrive`.
-- Result: one row per message: `replayed`; `no_payload` if the topic's `archive_success` did not keep the payload;
-- `too_large` if its payload or headers are larger as text than a publish accepts. No rows: there are no more messages.
-- Errors: 22004 without a topic, a time or a limit; 22023 for a topic that ends with `.dlq`, a limit outside 1 to
-- 10000, an invalid rate or delay.
-- Locks: the rows it inserts.
-- Repeat: publishes the messages again: continue with `p_after`.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.replay(
  p_topic text,
  p_from  timestamptz,
  p_to    timestamptz,
  p_limit integer          DEFAULT 1000,
  p_rate  double precision DEFAULT NULL,
  p_delay interval         DEFAULT '0',
  p_after bigint           DEFAULT 0
)
RETURNS TABLE (archived_id bigint, message_id bigint, outcome text)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now   timestamptz := messages.now();
  v_count bigint;
BEGIN
  IF num_nulls(p_topic, p_from, p_to, p_limit, p_delay, p_after) > 0 THEN
    RAISE EXCEPTION 'replay needs a topic, a time from and to, and a limit' USING ERRCODE = '22004';
  END IF;
  IF right(p_topic, 4) = '.dlq' THEN
    RAISE EXCEPTION 'topic of a replay is "%"', p_topic
      USING ERRCODE = '22023', HINT = 'use another: topics that end with .dlq are filled by dead_letter alone';
  END IF;
  IF p_rate NOT BETWEEN 0.001 AND 1000000 THEN
    RAISE EXCEPTION 'rate of a replay is %', p_rate
      USING ERRCODE = '22023', HINT = 'use 0.001 to 1000000 messages a second';
  END IF;
  IF p_delay NOT BETWEEN '0' AND '3650 days' THEN
    RAISE EXCEPTION 'delay of a replay is %', p_delay
      USING ERRCODE = '22023', HINT = 'use an interval from 0 to 3650 days';
  END IF;
  IF p_limit NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'limit of a replay is %', p_limit
      USING ERRCODE = '22023', HINT = 'use 1 to 10000, and p_after for the next page';
  END IF;

  RETURN QUERY
  WITH picked AS MATERIALIZED (
    SELECT a.*, num_nonnulls(a.payload, a.body) = 1 AS is_whole,
           -- It came before that was refused.
           num_nonnulls(a.payload, a.body) = 1 AND NOT messages.is_within_size_limit(a.payload, a.headers) AS is_large
    FROM messages.message_archive AS a
    WHERE a.archived_at >= p_from AND a.archived_at < p_to AND a.topic = p_topic COLLATE "C" AND a.result = 'success'
      AND a.attempts > 0 AND a.id > p_after
    ORDER BY a.id
    LIMIT p_limit
  ), back AS (
    INSERT INTO messages.message (
      topic, channel, priority, payload, body, headers, available_at, max_attempts, timeout, backoff, retention,
      redriven_from)
    SELECT p.topic, messages.replace_unprintable(p.channel), p.priority, p.payload, p.body, p.headers,
           v_now + p_delay + make_interval(secs => coalesce((p.place - 1) / p_rate, 0)), p.max_attempts,
           p.timeout, p.backoff, p.retention, p.id
    FROM (
      SELECT w.*, row_number() OVER (ORDER BY w.id) AS place FROM picked AS w WHERE w.is_whole AND NOT w.is_large
    ) AS p
    ORDER BY p.id
    RETURNING message.redriven_from, message.id
  )
  SELECT b.redriven_from, b.id, 'replayed' FROM back AS b
  UNION ALL
  SELECT p.id, NULL, CASE WHEN p.is_large THEN 'too_large' ELSE 'no_payload' END FROM picked AS p
  WHERE p.is_large OR NOT p.is_whole
  ORDER BY 1;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  IF v_count > 0 THEN
    PERFORM messages.audit_action(
      'replay', p_topic, NULL,
      jsonb_build_object('count', v_count, 'from', p_from, 'to', p_to, 'rate', p_rate, 'after', nullif(p_after, 0)));
  END IF;
END
$$;
