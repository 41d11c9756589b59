-- Returns the sessions that have locked a row that others need, in a transaction that is still open: rows of
-- `messages.mutex`, the counters of `max_depth`, the rates of `publish_rate`; with arguments also the rows of that
-- channel and that message. Rows that several transactions hold, and rows that are only being inserted, are not shown.
--
-- Result: one row for each. `what`: what is locked, and what waits for it; `who`: process, role, `application_name` and
-- state of the session, or the prepared transaction; `since`: when its transaction began, NULL where the owner of the
-- schema is not a member of `pg_read_all_stats`; `fix`: the statement that ends it. A lock that was taken in a
-- savepoint is attributed to the oldest transaction that can have it, "most likely".
-- Errors: none.
-- Locks: none.
-- Called by: examine_holders, the functions of explain, operators and analysts.
-- Inside: A row shows the transaction that locked or changed it last; if that still runs, it holds the row.
CREATE OR REPLACE FUNCTION messages.lock_holders(
  p_topic text DEFAULT NULL, p_channel text DEFAULT NULL, p_message_id bigint DEFAULT NULL
)
RETURNS TABLE (kind text, topic text, what text, who text, pid integer, since timestamptz, fix text)
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT r.kind, r.topic, r.what,
         CASE WHEN a.pid IS NULL THEN format('the prepared transaction %L of %s', p.gid, p.owner)
              ELSE format('process %s (%s)', a.pid, concat_ws(', ', a.usename, nullif(a.application_name, ''), a.state))
                || CASE WHEN l.granted THEN '' ELSE ', most likely,' END END,
         a.pid, coalesce(a.xact_start, p.prepared),
         CASE WHEN a.pid IS NULL THEN format('COMMIT PREPARED %1$L; or ROLLBACK PREPARED %1$L;', p.gid)
              ELSE format('SELECT pg_terminate_backend(%s);', a.pid) END
  FROM (
    SELECT x.kind, CASE WHEN x.name <> '' THEN x.name END,
           CASE x.kind
             WHEN 'tick'          THEN 'the maintenance: no other tick runs'
             WHEN 'update_conditions'         THEN 'the watch over conditions: no alert of them is raised'
             WHEN 'policies'      THEN 'the policies and subscriptions: anyone who else changes one waits'
             WHEN 'topic'         THEN format('topic %s: no other claim takes from it', x.name)
             WHEN 'channels'      THEN format('the new channels of topic %s: no other claim takes from them', x.name)
             ELSE x.kind
           END,
           x.xmax
    FROM messages.mutex AS x
    WHERE x.kind NOT IN ('breakers', 'low_water')
    UNION ALL
    SELECT 'depth', d.topic, format('the counter of topic %s: anyone who else publishes to it waits', d.topic), d.xmax
    FROM messages.depth AS d
    UNION ALL
    SELECT 'publish_rate', u.topic,
           format('the publish_rate of topic %s: anyone who else publishes to it waits', u.topic), u.xmax
    FROM messages.rate AS u WHERE u.kind = 'publish'
    UNION ALL
    SELECT 'channel', c.topic, format('channel %s of topic %s: no other claim takes from it', c.channel, c.topic),
           c.xmax
    FROM messages.rate AS c WHERE c.kind = 'channel' AND c.topic = p_topic AND c.channel = p_channel
    UNION ALL
    SELECT 'message', m.topic, format('message %s: claims pass it over', m.id), m.xmax
    FROM messages.message AS m WHERE m.id = p_message_id
  ) AS r (kind, topic, what, xmax)
  CROSS JOIN (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint) AS n (next)
  LEFT JOIN pg_locks AS l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = r.xmax
  LEFT JOIN LATERAL (
    SELECT s.* FROM pg_stat_activity AS s
    WHERE s.pid = l.pid OR (l.granted IS NULL AND age(s.backend_xid) >= age(r.xmax)) ORDER BY s.xact_start LIMIT 1
  ) AS a ON true
  LEFT JOIN pg_prepared_xacts AS p ON l.granted AND l.pid IS NULL AND p.transaction = l.transactionid
  -- The number that a row shows lacks the upper half: it is that which is next to the latest.
  CROSS JOIN LATERAL (SELECT (r.xmax::text::bigint - n.next + 2147483648) & 4294967295) AS d (distance)
  WHERE CASE WHEN r.xmax::text <> '0' AND age(r.xmax) > 0 THEN
      pg_xact_status((greatest(3, n.next + d.distance - 2147483648)::text)::xid8) END = 'in progress'
    AND coalesce(a.pid, 0) <> pg_backend_pid() AND num_nonnulls(a.pid, p.gid) > 0
$$;
