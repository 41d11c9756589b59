-- Returns how up to 10,000 messages ended. With `p_for` the call registers the caller as `messages.wait_for` does;
-- without it, it only looks, which a client in a transaction can do too. The `state` of a message is one of:
--
-- - `ended`: the other columns say how; `output` is JSON as text.
-- - `waiting`: it has not ended, and its end will notify.
-- - `ending`: another transaction is ending it, or has locked it in another way: nothing was registered, ask again
--   soon. Without `p_for`: it has not ended.
-- - `missing`: it was never published, or the publish is not committed, or it ended and nothing of it is kept. If it
--   was `waiting` or `ending` before, it ended as `success`.
-- - `forbidden`: this role may not know, nor whether there is such a message.
--
-- A role that may read the column `output` of `messages.message_archive`, as operators may, gets the result of every
-- message. Any other role gets the results of those messages that it published with `p_expect_result`; for this, the
-- role is the one that logged in.
--
-- Result: a row for each id.
-- Errors: 22023 for more than 10,000 ids, and for a `p_for` outside of 1 ms to 1 hour.
-- Locks: with `p_for` the messages, FOR KEY SHARE, as `messages.wait_for`. It waits for no transaction that ends a
-- message, but for at most 10 ms.
-- Cost: as `messages.wait_for`.
-- Repeat: safe.
-- Called by: clients that wait, on a connection that already listens to settled; and without `p_for` by clients that
-- poll.
CREATE OR REPLACE FUNCTION messages.wait_for_many(p_ids bigint[], p_for interval DEFAULT NULL)
RETURNS TABLE (id bigint, state text, result text, output text, error text, attempts integer, archived_at timestamptz)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_asked   bigint[] := ARRAY(SELECT DISTINCT a.id FROM unnest(p_ids) AS a (id) WHERE a.id IS NOT NULL ORDER BY a.id);
  v_allowed bigint[] := v_asked;
  v_waiting bigint[] := '{}'::bigint[];
BEGIN
  IF p_for NOT BETWEEN '1 ms' AND '1 hour' OR cardinality(v_asked) > 10000 THEN
    RAISE EXCEPTION 'wait_for_many was called with % messages and p_for = %',
      cardinality(v_asked), coalesce('"' || p_for || '"', 'NULL')
      USING ERRCODE = '22023',
        HINT = 'use at most 10000 messages and 1 ms to 1 hour, and call it again if they have not ended by then';
  END IF;
  IF NOT has_column_privilege(session_user, 'messages.message_archive', 'output', 'SELECT') THEN
    v_allowed := ARRAY(
      SELECT x.message_id
      FROM messages.expected_result AS x
      WHERE x.message_id = ANY (v_asked) AND x.role = session_user
      ORDER BY 1);
  END IF;
  IF p_for IS NOT NULL THEN
    v_waiting := messages.lock_to_wait(v_allowed);
  END IF;
  IF v_waiting <> '{}' THEN
    INSERT INTO messages.waiter AS w (message_id, until)
    SELECT u.id, messages.now() + p_for FROM unnest(v_waiting) AS u (id) ORDER BY u.id
    ON CONFLICT (message_id) DO UPDATE SET until = greatest(w.until, excluded.until);
    PERFORM messages.raise_awaited_flag();
    PERFORM messages.extend_expected_results(v_waiting);
  END IF;
  -- One statement, so that each message is seen in one place.
  RETURN QUERY
  SELECT q.id,
         CASE
           WHEN q.id NOT IN (SELECT l.id FROM unnest(v_allowed) AS l (id)) THEN 'forbidden'
           WHEN a.id IS NOT NULL THEN 'ended'
           WHEN q.id IN (SELECT w.id FROM unnest(v_waiting) AS w (id)) THEN 'waiting'
           WHEN m.id IS NOT NULL THEN 'ending'
           ELSE 'missing'
         END,
         a.result, a.output::text, a.error, a.attempts, a.archived_at
  FROM unnest(v_asked) AS q (id)
  LEFT JOIN LATERAL (SELECT m.id FROM messages.message AS m WHERE m.id = q.id OFFSET 0) AS m ON true
  LEFT JOIN LATERAL (
    SELECT o.*
    FROM messages.message_archive AS o
    -- IS TRUE: not a join, which would compare each with each where hash joins are off.
    WHERE o.id = q.id AND (q.id IN (SELECT l.id FROM unnest(v_allowed) AS l (id))) IS TRUE
    LIMIT 1
  ) AS a ON true;
END
$$;

-- Lock messages whose ends are waited for, but for those that another transaction is ending.
-- Called by: wait_for_many. Locks: those that it returns, FOR KEY SHARE. SKIP LOCKED does not skip a row that one
-- transaction has updated and then ended: it waits for that, for 10 ms at the most, and then locks the rows one by one.
CREATE OR REPLACE FUNCTION messages.lock_to_wait(p_ids bigint[])
RETURNS bigint[]
LANGUAGE plpgsql
AS $$
DECLARE
  v_wait text     := current_setting('lock_timeout');
  v_held bigint[] := '{}'::bigint[];
  v_id   bigint;
BEGIN
  -- If it is undone, so is the timeout.
  BEGIN
    PERFORM set_config('lock_timeout', '10ms', true);
    v_held := ARRAY(
      SELECT m.id
      FROM messages.message AS m
      WHERE m.id = ANY (p_ids)
      ORDER BY m.id
      FOR KEY SHARE SKIP LOCKED);
    PERFORM set_config('lock_timeout', v_wait, true);
    RETURN v_held;
  EXCEPTION WHEN lock_not_available THEN
    v_held := '{}'::bigint[];
  END;
  FOREACH v_id IN ARRAY p_ids LOOP
    BEGIN
      PERFORM set_config('lock_timeout', '1ms', true);
      PERFORM FROM messages.message AS m WHERE m.id = v_id FOR KEY SHARE SKIP LOCKED;
      IF FOUND THEN
        v_held := v_held || v_id;
      END IF;
      PERFORM set_config('lock_timeout', v_wait, true);
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
  RETURN v_held;
END
$$;

-- Keep the right of the caller to results while it waits for them.
-- Called by: wait_for_many. Locks: the rows that it changes, which only waiters of the same role change: seldom, and
-- skipping those that others hold.
CREATE OR REPLACE FUNCTION messages.extend_expected_results(p_ids bigint[])
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  UPDATE messages.expected_result AS x
  SET until = messages.now() + interval '1 day'
  WHERE (x.message_id, x.role) IN (
    SELECT o.message_id, o.role
    FROM messages.expected_result AS o
    WHERE o.message_id = ANY (p_ids) AND o.role = session_user AND o.until < messages.now() + interval '12 hours'
    FOR UPDATE SKIP LOCKED);
END
$$;
