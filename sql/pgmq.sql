-- The functions of pgmq over messages.message, so that its clients work here: an optional step,
-- docs/coming-from.md#pgmq.
-- Called by: psql -f pgmq.sql, as the owner of the schema messages or a superuser; again after an upgrade. It needs a
-- database without the extension pgmq. To remove it: DROP SCHEMA pgmq CASCADE; the messages stay.
--
-- A queue is a topic that pgmq.create has listed. A read claims messages and defers them at once to the end of vt: so
-- they are not locked, as with pgmq, and return by themselves. Their functions take any id of a queue: nothing proves
-- that a reader still owns what it ends. A daemon that handles the topic takes its messages, too.
--
-- All of it is one statement, so that no tool can continue after an error, and what a name means is fixed before the
-- first name.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
DO LANGUAGE plpgsql $pgmq$
DECLARE
  v_owner    pg_catalog.oid;
  v_foreign  pg_catalog.text;
  v_function pg_catalog.regprocedure;
  v_grant    pg_catalog.text[];
BEGIN
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL standard_conforming_strings = on;
SET LOCAL check_function_bodies = on;
SET LOCAL default_tablespace = '';
SET LOCAL default_table_access_method = heap;
SET LOCAL plpgsql.extra_errors = none;

IF EXISTS (SELECT FROM pg_extension AS e WHERE e.extname = 'pgmq') THEN
  RAISE EXCEPTION 'this database has the extension pgmq'
    USING HINT = 'move its messages first, then DROP EXTENSION pgmq CASCADE';
END IF;
v_owner := (SELECT n.nspowner FROM pg_namespace AS n WHERE n.nspname = 'messages');
IF v_owner IS NULL THEN
  RAISE EXCEPTION 'database "%" has no schema "messages"', current_database()
    USING HINT = 'run `pgrouse migrate` first';
END IF;
EXECUTE format('CREATE SCHEMA IF NOT EXISTS pgmq AUTHORIZATION %s', v_owner::regrole);
-- The functions run with the rights of the schema's owner, also if a superuser installs them.
EXECUTE format('SET LOCAL ROLE %s', v_owner::regrole);
-- An object that another role owns here, or can create here, would run with the rights of the owner: a trigger of a
-- table, for example.
v_foreign := (
  SELECT format('%s is owned by %s', o.name, o.owner::regrole)
  FROM (
    SELECT 'the schema pgmq', n.nspowner FROM pg_namespace AS n WHERE n.nspname = 'pgmq'
    UNION ALL
    SELECT c.oid::regclass::text, c.relowner FROM pg_class AS c WHERE c.relnamespace = 'pgmq'::regnamespace
    UNION ALL
    SELECT p.oid::regprocedure::text, p.proowner FROM pg_proc AS p WHERE p.pronamespace = 'pgmq'::regnamespace
    UNION ALL
    SELECT t.oid::regtype::text, t.typowner FROM pg_type AS t WHERE t.typnamespace = 'pgmq'::regnamespace
  ) AS o (name, owner)
  WHERE o.owner <> v_owner
  LIMIT 1);
IF v_foreign IS NOT NULL THEN
  RAISE EXCEPTION '%, and not by %, which owns the schema messages', v_foreign, v_owner::regrole
    USING HINT = 'nothing was installed; look at what is there, and then DROP SCHEMA pgmq CASCADE';
END IF;
REVOKE ALL ON SCHEMA pgmq FROM PUBLIC;

CREATE TABLE IF NOT EXISTS pgmq.meta (
  queue_name     text        COLLATE "C" PRIMARY KEY,
  is_partitioned boolean     NOT NULL DEFAULT false,
  is_unlogged    boolean     NOT NULL DEFAULT false,
  created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- NULL = a send notifies no listeners of pgmq.
  notify_ms      integer     CHECK (notify_ms >= 0),
  notified_at    timestamptz NOT NULL DEFAULT to_timestamp(0)
);

-- The routing keys that a queue gets. In a pattern * stands for a part without a dot, at least one character, and # for
-- anything.
CREATE TABLE IF NOT EXISTS pgmq.topic_bindings (
  pattern        text        COLLATE "C" NOT NULL,
  queue_name     text        COLLATE "C" NOT NULL REFERENCES pgmq.meta ON DELETE CASCADE,
  bound_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  compiled_regex text        NOT NULL GENERATED ALWAYS AS
    ('^' || replace(replace(replace(pattern, '.', E'\\.'), '*', '[^.]+'), '#', '.*') || '$') STORED,
  PRIMARY KEY (pattern, queue_name)
);
CREATE INDEX IF NOT EXISTS topic_bindings_queue_name ON pgmq.topic_bindings (queue_name);

IF to_regtype('pgmq.message_record') IS NULL THEN
  CREATE TYPE pgmq.message_record AS (
    msg_id bigint, read_ct integer, enqueued_at timestamptz, last_read_at timestamptz, vt timestamptz, message jsonb,
    headers jsonb);
  CREATE TYPE pgmq.queue_record AS (
    queue_name text, is_partitioned boolean, is_unlogged boolean, created_at timestamptz
  );
  CREATE TYPE pgmq.metrics_result AS (
    queue_name text, queue_length bigint, newest_msg_age_sec integer, oldest_msg_age_sec integer, total_messages bigint,
    scrape_time timestamptz, queue_visible_length bigint, default_partition_length bigint);
END IF;

-- The time after this many seconds.
CREATE OR REPLACE FUNCTION pgmq.after(seconds integer)
RETURNS timestamptz
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT messages.now() + make_interval(secs => seconds)
$$;

-- Queues.

-- Refuse a name that pgmq refuses, too. Errors: P0001.
CREATE OR REPLACE FUNCTION pgmq.validate_queue_name(queue_name text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  IF length(queue_name) > 47 THEN
    RAISE EXCEPTION 'queue name is too long, maximum length is 47 characters';
  END IF;
END
$$;

-- Refuse a queue that does not exist. Errors: 42P01.
CREATE OR REPLACE FUNCTION pgmq.check_queue(queue_name text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM pgmq.meta AS q WHERE q.queue_name = $1) THEN
    RAISE EXCEPTION 'queue % does not exist', queue_name
      USING ERRCODE = '42P01', HINT = format('SELECT pgmq.create(%L)', queue_name);
  END IF;
END
$$;

-- List a topic as a queue. Errors: P0001 for a name that is too long, 23514 for one that no topic may have.
CREATE OR REPLACE FUNCTION pgmq.create_non_partitioned(queue_name text)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  PERFORM pgmq.validate_queue_name(queue_name);
  INSERT INTO pgmq.meta (queue_name) VALUES (queue_name::messages.topic_name) ON CONFLICT DO NOTHING;
END
$$;

CREATE OR REPLACE FUNCTION pgmq.create(queue_name text)
RETURNS void
LANGUAGE sql
AS $$
  SELECT pgmq.create_non_partitioned(queue_name)
$$;

-- There are no unlogged queues: a message is as durable as any other.
CREATE OR REPLACE FUNCTION pgmq.create_unlogged(queue_name text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  RAISE NOTICE 'queue % is logged: there are no unlogged queues here', queue_name;
  PERFORM pgmq.create_non_partitioned(queue_name);
END
$$;

-- The archive of all topics is partitioned by the day; how long it is kept is a policy. That a queue was to be
-- partitioned is listed.
CREATE OR REPLACE FUNCTION pgmq.create_partitioned(
  queue_name text, partition_interval text DEFAULT '10000', retention_interval text DEFAULT '100000'
)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  RAISE NOTICE 'partition_interval % and retention_interval % have no effect: see the policy retention',
    partition_interval, retention_interval;
  PERFORM pgmq.create_non_partitioned(queue_name);
  UPDATE pgmq.meta AS q SET is_partitioned = true WHERE q.queue_name = $1;
END
$$;

CREATE OR REPLACE FUNCTION pgmq.convert_archive_partitioned(
  table_name text, partition_interval text DEFAULT '10000', retention_interval text DEFAULT '100000',
  leading_partition integer DEFAULT 10
)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  RAISE NOTICE 'the archive of % is partitioned by the day already', table_name;
END
$$;

CREATE OR REPLACE FUNCTION pgmq.list_queues()
RETURNS SETOF pgmq.queue_record
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT q.queue_name::text, q.is_partitioned, q.is_unlogged, q.created_at FROM pgmq.meta AS q ORDER BY q.queue_name
$$;

-- Delete what waits in a queue. Result: how many messages.
CREATE OR REPLACE FUNCTION pgmq.purge_queue(queue_name text)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_all   bigint := 0;
  v_batch bigint;
BEGIN
  PERFORM pgmq.check_queue(queue_name);
  LOOP
    v_batch := messages.purge_topic(queue_name, 10000);
    EXIT WHEN v_batch = 0;
    v_all := v_all + v_batch;
  END LOOP;
  RETURN v_all;
END
$$;

-- Delete what waits in a queue, and take it from the list. Its archive stays. Result: whether there was such a queue.
CREATE OR REPLACE FUNCTION pgmq.drop_queue(queue_name text)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM pgmq.meta AS q WHERE q.queue_name = $1) THEN
    RAISE NOTICE 'pgmq queue `%` does not exist', queue_name;
    RETURN false;
  END IF;
  PERFORM pgmq.purge_queue(queue_name);
  DELETE FROM pgmq.meta AS q WHERE q.queue_name = $1;
  -- A mutex that a reader holds stays: it may wait for the messages that were purged above, and to wait for it would be
  -- a deadlock.
  DELETE FROM messages.mutex AS x
  WHERE x.ctid = ANY (
    ARRAY(SELECT o.ctid FROM messages.mutex AS o WHERE o.kind = 'pgmq' AND o.name = $1 FOR UPDATE SKIP LOCKED));
  RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION pgmq.drop_queue(queue_name text, partitioned boolean)
RETURNS boolean
LANGUAGE sql
AS $$
  SELECT pgmq.drop_queue(queue_name)
$$;

CREATE OR REPLACE FUNCTION pgmq.detach_archive(queue_name text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  RAISE WARNING 'detach_archive(%) does nothing: an archive is not dropped with its queue', queue_name;
END
$$;

-- There is no index of groups: a grouped read looks at all that waits in its queue.
CREATE OR REPLACE FUNCTION pgmq.create_fifo_index(queue_name text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  RAISE NOTICE 'create_fifo_index(%) does nothing: grouped reads have no index of their own', queue_name;
END
$$;

CREATE OR REPLACE FUNCTION pgmq.create_fifo_indexes_all()
RETURNS void LANGUAGE sql AS $$ SELECT pgmq.create_fifo_index('all') $$;

-- Counts and ages of a queue. total_messages: those that wait, and those in the archive, as long as it is kept.
CREATE OR REPLACE FUNCTION pgmq.metrics(queue_name text)
RETURNS pgmq.metrics_result
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_result pgmq.metrics_result;
BEGIN
  PERFORM pgmq.check_queue(queue_name);
  SELECT $1, count(*), extract(epoch FROM v_now - max(m.created_at))::integer,
         extract(epoch FROM v_now - min(m.created_at))::integer,
         count(*) + (SELECT count(*) FROM messages.message_archive AS a WHERE a.topic = $1), v_now,
         count(*) FILTER (WHERE m.claim_id IS NULL AND m.available_at <= v_now), NULL
  INTO v_result
  FROM messages.message AS m
  WHERE m.topic = $1;
  RETURN v_result;
END
$$;

CREATE OR REPLACE FUNCTION pgmq.metrics_all()
RETURNS SETOF pgmq.metrics_result
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT r.* FROM pgmq.meta AS q CROSS JOIN LATERAL pgmq.metrics(q.queue_name) AS r
$$;

-- Sending.

-- Notify those who listen on pgmq.q_QUEUE.INSERT, if the queue has that and the last one is notify_ms ago. Locks: the
-- queue's row of pgmq.meta, only if free at once: its holder notifies the same listeners when it commits.
CREATE OR REPLACE FUNCTION pgmq.notify_listeners(queue_name text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  WITH due AS (
    SELECT q.ctid FROM pgmq.meta AS q
    WHERE q.queue_name = $1 AND clock_timestamp() >= q.notified_at + make_interval(secs => q.notify_ms / 1000.0)
    FOR NO KEY UPDATE SKIP LOCKED
  )
  UPDATE pgmq.meta AS q SET notified_at = clock_timestamp() FROM due WHERE q.ctid = due.ctid;
  IF FOUND THEN
    PERFORM pg_notify(format('pgmq.q_%s.INSERT', queue_name), NULL);
  END IF;
END
$$;

-- Let sends notify, at most once in this many milliseconds. Errors: 42P01 for an unknown queue, 23514 for a negative
-- time.
CREATE OR REPLACE FUNCTION pgmq.enable_notify_insert(queue_name text, throttle_interval_ms integer DEFAULT 250)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  PERFORM pgmq.check_queue(queue_name);
  UPDATE pgmq.meta AS q SET notify_ms = throttle_interval_ms, notified_at = to_timestamp(0) WHERE q.queue_name = $1;
END
$$;

-- As enable_notify_insert, for a queue that has it. Errors: P0001 if it has not.
CREATE OR REPLACE FUNCTION pgmq.update_notify_insert(queue_name text, throttle_interval_ms integer)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  UPDATE pgmq.meta AS q SET notify_ms = throttle_interval_ms, notified_at = to_timestamp(0)
  WHERE q.queue_name = $1 AND q.notify_ms IS NOT NULL;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'queue % does not notify', queue_name
      USING HINT = format('SELECT pgmq.enable_notify_insert(%L)', queue_name);
  END IF;
END
$$;

CREATE OR REPLACE FUNCTION pgmq.disable_notify_insert(queue_name text)
RETURNS void
LANGUAGE sql
SECURITY DEFINER
AS $$
  UPDATE pgmq.meta AS q SET notify_ms = NULL WHERE q.queue_name = $1
$$;

CREATE OR REPLACE FUNCTION pgmq.list_notify_insert_throttles()
RETURNS TABLE (queue_name text, throttle_interval_ms integer, last_notified_at timestamptz)
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT q.queue_name, q.notify_ms, q.notified_at FROM pgmq.meta AS q
  WHERE q.notify_ms IS NOT NULL ORDER BY q.queue_name
$$;

-- Publish messages that become visible at a time. Result: their ids, in the order of the messages.
-- Errors: 42P01 for an unknown queue, 22023 for headers of another number, and those of a publish.
CREATE OR REPLACE FUNCTION pgmq.send_batch(queue_name text, msgs jsonb[], headers jsonb[], delay timestamptz)
RETURNS SETOF bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  PERFORM pgmq.check_queue(queue_name);
  IF cardinality(headers) <> cardinality(msgs) THEN
    RAISE EXCEPTION 'there are % messages and % headers', cardinality(msgs), cardinality(headers)
      USING ERRCODE = '22023';
  END IF;
  PERFORM pgmq.notify_listeners(queue_name);
  RETURN QUERY
  INSERT INTO messages.message (topic, payload, headers, available_at)
  SELECT queue_name, e.msg, e.header, coalesce(delay, messages.now())
  FROM unnest(msgs, headers) WITH ORDINALITY AS e (msg, header, nth)
  ORDER BY e.nth
  RETURNING id;
END
$$;

CREATE OR REPLACE FUNCTION pgmq.send_batch(queue_name text, msgs jsonb[])
RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT pgmq.send_batch(queue_name, msgs, NULL::jsonb[], NULL::timestamptz) $$;
CREATE OR REPLACE FUNCTION pgmq.send_batch(queue_name text, msgs jsonb[], headers jsonb[])
RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT pgmq.send_batch(queue_name, msgs, headers, NULL::timestamptz) $$;
CREATE OR REPLACE FUNCTION pgmq.send_batch(queue_name text, msgs jsonb[], delay integer)
RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT pgmq.send_batch(queue_name, msgs, NULL::jsonb[], pgmq.after(delay)) $$;
CREATE OR REPLACE FUNCTION pgmq.send_batch(queue_name text, msgs jsonb[], delay timestamptz)
RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT pgmq.send_batch(queue_name, msgs, NULL::jsonb[], delay) $$;
CREATE OR REPLACE FUNCTION pgmq.send_batch(queue_name text, msgs jsonb[], headers jsonb[], delay integer)
RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT pgmq.send_batch(queue_name, msgs, headers, pgmq.after(delay)) $$;

CREATE OR REPLACE FUNCTION pgmq.send(queue_name text, msg jsonb)
RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT pgmq.send_batch(queue_name, ARRAY[msg]) $$;
CREATE OR REPLACE FUNCTION pgmq.send(queue_name text, msg jsonb, headers jsonb)
RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT pgmq.send_batch(queue_name, ARRAY[msg], ARRAY[headers]) $$;
CREATE OR REPLACE FUNCTION pgmq.send(queue_name text, msg jsonb, delay integer)
RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT pgmq.send_batch(queue_name, ARRAY[msg], delay) $$;
CREATE OR REPLACE FUNCTION pgmq.send(queue_name text, msg jsonb, delay timestamptz)
RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT pgmq.send_batch(queue_name, ARRAY[msg], delay) $$;
CREATE OR REPLACE FUNCTION pgmq.send(queue_name text, msg jsonb, headers jsonb, delay integer)
RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT pgmq.send_batch(queue_name, ARRAY[msg], ARRAY[headers], delay) $$;
CREATE OR REPLACE FUNCTION pgmq.send(queue_name text, msg jsonb, headers jsonb, delay timestamptz)
RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT pgmq.send_batch(queue_name, ARRAY[msg], ARRAY[headers], delay) $$;

-- Routing.

-- Refuse words with dots between them that are not so. Errors: P0001.
CREATE OR REPLACE FUNCTION pgmq.check_words(what text, words text, characters text)
RETURNS void
LANGUAGE plpgsql
IMMUTABLE
AS $$
DECLARE
  v_wrong text := CASE
    WHEN coalesce(words, '') = '' THEN 'is empty'
    WHEN length(words) > 255 THEN format('has %s characters, 255 at most are allowed', length(words))
    WHEN words !~ format('^[%s]+$', characters) THEN format('has characters other than [%s]', characters)
    WHEN words ~ E'^\\.' THEN 'starts with a dot'
    WHEN words ~ E'\\.$' THEN 'ends with a dot'
    WHEN words ~ E'\\.\\.' THEN 'has two dots in a row'
    WHEN words ~ '[*#]{2}' THEN 'has two wildcards in a row'
  END;
BEGIN
  IF v_wrong IS NOT NULL THEN
    RAISE EXCEPTION '% % %', what, quote_nullable(left(words, 255)), v_wrong;
  END IF;
END
$$;

CREATE OR REPLACE FUNCTION pgmq.validate_routing_key(routing_key text)
RETURNS boolean
LANGUAGE plpgsql
IMMUTABLE
AS $$
BEGIN
  PERFORM pgmq.check_words('routing_key', routing_key, 'a-zA-Z0-9._-');
  RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION pgmq.validate_topic_pattern(pattern text)
RETURNS boolean
LANGUAGE plpgsql
IMMUTABLE
AS $$
BEGIN
  PERFORM pgmq.check_words('pattern', pattern, 'a-zA-Z0-9._*#-');
  RETURN true;
END
$$;

-- Let a queue get what is sent to the routing keys of a pattern, until it is unbound or dropped.
-- Errors: P0001 for an invalid pattern, 42P01 for an unknown queue.
CREATE OR REPLACE FUNCTION pgmq.bind_topic(pattern text, queue_name text)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  PERFORM pgmq.validate_topic_pattern(pattern);
  PERFORM pgmq.check_queue(queue_name);
  INSERT INTO pgmq.topic_bindings (pattern, queue_name) VALUES ($1, $2) ON CONFLICT DO NOTHING;
END
$$;

-- Result: whether it was bound.
CREATE OR REPLACE FUNCTION pgmq.unbind_topic(pattern text, queue_name text)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  DELETE FROM pgmq.topic_bindings AS b WHERE b.pattern = $1 AND b.queue_name = $2;
  RETURN FOUND;
END
$$;

CREATE OR REPLACE FUNCTION pgmq.list_topic_bindings()
RETURNS TABLE (pattern text, queue_name text, bound_at timestamptz, compiled_regex text)
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT b.pattern, b.queue_name, b.bound_at, b.compiled_regex FROM pgmq.topic_bindings AS b
  ORDER BY b.bound_at DESC, b.pattern, b.queue_name
$$;

CREATE OR REPLACE FUNCTION pgmq.list_topic_bindings(queue_name text)
RETURNS TABLE (pattern text, queue_name text, bound_at timestamptz, compiled_regex text)
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT b.* FROM pgmq.list_topic_bindings() AS b WHERE b.queue_name = $1
$$;

-- Return the patterns that a routing key matches, and their queues. Errors: P0001 for an invalid key.
CREATE OR REPLACE FUNCTION pgmq.test_routing(routing_key text)
RETURNS TABLE (pattern text, queue_name text, compiled_regex text)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  PERFORM pgmq.validate_routing_key(routing_key);
  RETURN QUERY
  SELECT b.pattern, b.queue_name, b.compiled_regex FROM pgmq.topic_bindings AS b
  WHERE routing_key ~ b.compiled_regex
  ORDER BY b.pattern, b.queue_name;
END
$$;

-- Publish messages to each queue that a routing key matches, once to each. Result: the ids, queue by queue.
-- Errors: P0001 for an invalid key, and those of send_batch. As there, a negative delay is none.
CREATE OR REPLACE FUNCTION pgmq.send_batch_topic(routing_key text, msgs jsonb[], headers jsonb[], delay timestamptz)
RETURNS TABLE (queue_name text, msg_id bigint)
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT q.queue_name, s.id
  FROM (SELECT DISTINCT r.queue_name FROM pgmq.test_routing(routing_key) AS r ORDER BY r.queue_name) AS q
  CROSS JOIN LATERAL pgmq.send_batch(q.queue_name, msgs, headers, delay) AS s (id)
$$;

CREATE OR REPLACE FUNCTION pgmq.send_batch_topic(routing_key text, msgs jsonb[])
RETURNS TABLE (queue_name text, msg_id bigint) LANGUAGE sql AS $$
  SELECT * FROM pgmq.send_batch_topic(routing_key, msgs, NULL::jsonb[], NULL::timestamptz) $$;
CREATE OR REPLACE FUNCTION pgmq.send_batch_topic(routing_key text, msgs jsonb[], headers jsonb[])
RETURNS TABLE (queue_name text, msg_id bigint) LANGUAGE sql AS $$
  SELECT * FROM pgmq.send_batch_topic(routing_key, msgs, headers, NULL::timestamptz) $$;
CREATE OR REPLACE FUNCTION pgmq.send_batch_topic(routing_key text, msgs jsonb[], delay integer)
RETURNS TABLE (queue_name text, msg_id bigint) LANGUAGE sql AS $$
  SELECT * FROM pgmq.send_batch_topic(routing_key, msgs, NULL::jsonb[], pgmq.after(delay)) $$;
CREATE OR REPLACE FUNCTION pgmq.send_batch_topic(routing_key text, msgs jsonb[], delay timestamptz)
RETURNS TABLE (queue_name text, msg_id bigint) LANGUAGE sql AS $$
  SELECT * FROM pgmq.send_batch_topic(routing_key, msgs, NULL::jsonb[], delay) $$;
CREATE OR REPLACE FUNCTION pgmq.send_batch_topic(routing_key text, msgs jsonb[], headers jsonb[], delay integer)
RETURNS TABLE (queue_name text, msg_id bigint) LANGUAGE sql AS $$
  SELECT * FROM pgmq.send_batch_topic(routing_key, msgs, headers, pgmq.after(delay)) $$;

-- Result: how many queues got the message. Errors: P0001 for no message or a negative delay, and those of
-- send_batch_topic.
CREATE OR REPLACE FUNCTION pgmq.send_topic(routing_key text, msg jsonb, headers jsonb, delay integer)
RETURNS integer
LANGUAGE plpgsql
AS $$
BEGIN
  IF msg IS NULL OR delay < 0 THEN
    RAISE EXCEPTION 'msg is % and delay is %', coalesce(msg::text, 'NULL'), delay
      USING HINT = 'give a msg, and a delay from 0';
  END IF;
  RETURN (SELECT count(*) FROM pgmq.send_batch_topic(routing_key, ARRAY[msg], ARRAY[headers], delay));
END
$$;

CREATE OR REPLACE FUNCTION pgmq.send_topic(routing_key text, msg jsonb)
RETURNS integer LANGUAGE sql AS $$ SELECT pgmq.send_topic(routing_key, msg, NULL, 0) $$;
CREATE OR REPLACE FUNCTION pgmq.send_topic(routing_key text, msg jsonb, headers jsonb)
RETURNS integer LANGUAGE sql AS $$ SELECT pgmq.send_topic(routing_key, msg, headers, 0) $$;
CREATE OR REPLACE FUNCTION pgmq.send_topic(routing_key text, msg jsonb, delay integer)
RETURNS integer LANGUAGE sql AS $$ SELECT pgmq.send_topic(routing_key, msg, NULL, delay) $$;

-- Reading.

-- The messages of these ids, as pgmq shows them: a time-out that passed is when they became visible.
CREATE OR REPLACE FUNCTION pgmq.records(ids bigint[], last_read_at timestamptz)
RETURNS SETOF pgmq.message_record
LANGUAGE sql
STABLE
AS $$
  SELECT m.id, m.runs::integer, m.created_at::timestamptz, last_read_at, m.available_at::timestamptz, m.payload::jsonb,
         m.headers::jsonb
  FROM unnest(ids) WITH ORDINALITY AS e (id, nth)
  JOIN messages.message AS m ON m.id = ANY (ARRAY[e.id])
  ORDER BY e.nth
$$;

-- Check the arguments of a read, and let its topic count as one that has a worker.
-- Locks: the worker's row, only if free at once: a reader with an open transaction must not hold up others.
-- Errors: 42P01 for an unknown queue, 22023 for an invalid number.
CREATE OR REPLACE FUNCTION pgmq.begin_read(queue_name text, vt integer, qty integer)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  PERFORM pgmq.check_queue(queue_name);
  IF vt IS NULL OR vt < 0 OR qty IS NULL OR qty NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'vt is % and qty is %', vt, qty
      USING ERRCODE = '22023', HINT = 'use a vt from 0, and a qty from 1 to 10000';
  END IF;
  IF NOT EXISTS (
    SELECT FROM messages.worker AS w
    WHERE w.name = 'pgmq:' || queue_name AND w.seen_at > clock_timestamp() - interval '5 s')
     AND messages.lock_mutex('pgmq', queue_name) THEN
    PERFORM messages.touch_http_worker('pgmq:' || queue_name, 'pgmq', ARRAY[queue_name], qty);
  END IF;
END
$$;

-- Defer the messages of a claim for vt seconds. Result: these messages.
CREATE OR REPLACE FUNCTION pgmq.end_read(ids bigint[], claim bigint, vt integer)
RETURNS SETOF pgmq.message_record
LANGUAGE plpgsql
AS $$
BEGIN
  IF ids IS NOT NULL THEN
    PERFORM messages.defer(
      ids, array_fill(claim, ARRAY[cardinality(ids)]), p_untils => array_fill(pgmq.after(vt), ARRAY[cardinality(ids)]));
    RETURN QUERY SELECT r.* FROM pgmq.records(ids, messages.now()) AS r;
  END IF;
END
$$;

-- Hand out messages, and make them visible again after vt seconds. They come by priority, then the longest visible
-- first; pauses, limits and expiry of the topic apply. read_ct counts the reads. conditional: only messages whose
-- payload contains this.
-- Errors: those of begin_read.
CREATE OR REPLACE FUNCTION pgmq.read(queue_name text, vt integer, qty integer, conditional jsonb DEFAULT '{}')
RETURNS SETOF pgmq.message_record
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids   bigint[];
  v_claim bigint;
BEGIN
  PERFORM pgmq.begin_read(queue_name, vt, qty);
  IF conditional <> '{}' THEN
    RETURN QUERY SELECT r.* FROM pgmq.read_where(queue_name, vt, qty, conditional) AS r;
    RETURN;
  END IF;
  -- Locked for longer than it takes to defer them, however short the topic's lock is.
  SELECT array_agg(c.id), max(c.claim_id) INTO v_ids, v_claim
  FROM messages.claim('pgmq', ARRAY[queue_name], qty, p_lock_duration => interval '1 minute', p_contents => false) AS c;
  RETURN QUERY SELECT r.* FROM pgmq.end_read(v_ids, v_claim, vt) AS r;
END
$$;

-- Return how many messages of a queue a read that claims by itself may take. Locks: as topic_slots.
-- Called by: read_where, read_groups.
CREATE OR REPLACE FUNCTION pgmq.room(policy messages.policy, qty integer)
RETURNS integer
LANGUAGE sql
AS $$
  SELECT CASE
    WHEN policy.stopped_until IS NOT NULL THEN 0
    WHEN policy.is_limited THEN (messages.topic_slots(policy, 'pgmq', qty)).slots
    ELSE qty
  END
$$;

-- Claim messages that the caller has locked, and hand them out. Unlike claim it does not bound their bytes, and also
-- hands out those whose attempts are used up. Called by: read_where, read_groups.
CREATE OR REPLACE FUNCTION pgmq.take(ids bigint[], policy messages.policy, vt integer)
RETURNS SETOF pgmq.message_record
LANGUAGE plpgsql
AS $$
DECLARE
  v_now   timestamptz := messages.now();
  v_claim bigint := 1 + floor(random() * 4503599627370496)::bigint;
BEGIN
  UPDATE messages.message AS m
  SET claim_id = v_claim, locked_by = 'pgmq', locked_at = v_now, lock_expires_at = v_now + interval '1 minute',
      attempts = m.attempts + 1, runs = m.runs + 1
  WHERE m.id = ANY (ids);
  IF policy.dequeue_rate IS NOT NULL AND ids IS NOT NULL THEN
    PERFORM messages.charge_rate('dequeue', policy.topic, policy.dequeue_rate, cardinality(ids), v_now);
  END IF;
  RETURN QUERY SELECT r.* FROM pgmq.end_read(ids, v_claim, vt) AS r;
END
$$;

-- Hand out messages whose payload contains a condition. It looks at what is ready, in the order of a read, until it has
-- found enough. What has a channel is left alone: it has the order and the limits of its channel.
-- Called by: read. Locks: the rows, skipping those that others hold.
CREATE OR REPLACE FUNCTION pgmq.read_where(queue_name text, vt integer, qty integer, conditional jsonb)
RETURNS SETOF pgmq.message_record
LANGUAGE plpgsql
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_policy messages.policy := messages.claim_policy(queue_name, v_now);
  v_ids    bigint[];
BEGIN
  v_ids := ARRAY(
    SELECT m.id FROM messages.message AS m
    WHERE m.topic = queue_name AND m.claim_id IS NULL AND m.channel IS NULL AND m.available_at <= v_now
      AND (m.expires_at <= v_now) IS NOT TRUE AND m.payload @> conditional
    ORDER BY m.priority, m.available_at, m.id
    LIMIT pgmq.room(v_policy, qty)
    FOR NO KEY UPDATE SKIP LOCKED);
  RETURN QUERY SELECT r.* FROM pgmq.take(nullif(v_ids, '{}'), v_policy, vt) AS r;
END
$$;

-- The messages that wait or run in a queue, with their groups. A message with a channel is in no group: it has the
-- order and the limits of its channel. What has expired is left to the maintenance.
CREATE OR REPLACE FUNCTION pgmq.members(queue_name text, now timestamptz)
RETURNS TABLE (id bigint, group_name text, is_visible boolean)
LANGUAGE sql
STABLE
AS $$
  -- Each half has an index.
  SELECT m.id, coalesce(m.headers ->> 'x-pgmq-group', '_default_fifo_group'), m.available_at <= now
  FROM messages.message AS m
  WHERE m.topic = queue_name AND m.claim_id IS NULL AND m.channel IS NULL AND (m.expires_at <= now) IS NOT TRUE
  UNION ALL
  SELECT m.id, coalesce(m.headers ->> 'x-pgmq-group', '_default_fifo_group'), false
  FROM messages.message AS m
  WHERE m.topic = queue_name AND m.claim_id IS NOT NULL AND m.channel IS NULL
$$;

-- Hand out messages in the order of their ids within each group, and make them visible again after vt seconds: of a
-- group what comes before its first message that is invisible or that another transaction has locked. The group with
-- the oldest message comes first.
-- Called by: read_grouped (as many of a group as there are, then the next group), read_grouped_rr (one of each group,
-- then again) and read_grouped_head (one of each group): way is their name. Pauses, limits and expiry of the topic
-- apply.
-- Locks: the first message of as many groups as it may take messages, then the others, skipping those that others hold.
-- So one transaction at a time takes from a group, and others take from groups that it has not locked. Errors: those of
-- begin_read.
CREATE OR REPLACE FUNCTION pgmq.read_groups(way text, queue_name text, vt integer, qty integer)
RETURNS SETOF pgmq.message_record
LANGUAGE plpgsql
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_policy messages.policy := messages.claim_policy(queue_name, v_now);
  v_room   integer;
  v_ids    bigint[];
BEGIN
  PERFORM pgmq.begin_read(queue_name, vt, qty);
  v_room := pgmq.room(v_policy, qty);
  -- Changes by others since this statement began are seen when the row is locked.
  WITH member AS (
    SELECT g.id, first_value(g.id) OVER line AS head, row_number() OVER line AS nth,
           bool_and(g.is_visible) OVER line AS is_free
    FROM pgmq.members(queue_name, v_now) AS g
    WINDOW line AS (PARTITION BY g.group_name ORDER BY g.id)
  ), head AS (
    SELECT m.id FROM messages.message AS m
    WHERE m.id = ANY (ARRAY(SELECT f.id FROM member AS f WHERE f.nth = 1 AND f.is_free)) AND m.claim_id IS NULL
      AND m.available_at <= v_now
    ORDER BY m.id
    LIMIT v_room
    FOR NO KEY UPDATE SKIP LOCKED
  ), pick AS (
    SELECT p.id, p.head,
           row_number() OVER (ORDER BY CASE way WHEN 'read_grouped' THEN 0 ELSE p.nth END, p.head, p.nth) AS place
    FROM member AS p
    WHERE p.head = ANY (ARRAY(SELECT h.id FROM head AS h)) AND p.is_free AND (p.nth = 1 OR way <> 'read_grouped_head')
    ORDER BY place
    LIMIT v_room
  ), locked AS (
    SELECT m.id FROM messages.message AS m
    WHERE m.id = ANY (ARRAY(SELECT p.id FROM pick AS p)) AND m.claim_id IS NULL AND m.available_at <= v_now
    FOR NO KEY UPDATE SKIP LOCKED
  )
  SELECT array_agg(t.id ORDER BY t.place) INTO v_ids
  FROM (
    SELECT p.id, p.place, bool_and(k.id IS NOT NULL) OVER (PARTITION BY p.head ORDER BY p.id) AS is_taken
    FROM pick AS p
    LEFT JOIN locked AS k ON k.id = p.id
  ) AS t
  WHERE t.is_taken;

  RETURN QUERY SELECT r.* FROM pgmq.take(v_ids, v_policy, vt) AS r;
END
$$;

CREATE OR REPLACE FUNCTION pgmq.read_grouped(queue_name text, vt integer, qty integer)
RETURNS SETOF pgmq.message_record LANGUAGE sql SECURITY DEFINER AS $$
  SELECT pgmq.read_groups('read_grouped', queue_name, vt, qty) $$;
CREATE OR REPLACE FUNCTION pgmq.read_grouped_rr(queue_name text, vt integer, qty integer)
RETURNS SETOF pgmq.message_record LANGUAGE sql SECURITY DEFINER AS $$
  SELECT pgmq.read_groups('read_grouped_rr', queue_name, vt, qty) $$;
CREATE OR REPLACE FUNCTION pgmq.read_grouped_head(queue_name text, vt integer, qty integer)
RETURNS SETOF pgmq.message_record LANGUAGE sql SECURITY DEFINER AS $$
  SELECT pgmq.read_groups('read_grouped_head', queue_name, vt, qty) $$;

-- Read in a way; without a message look again, for at most this long. It holds a connection while it waits: LISTEN is
-- cheaper. It reads only when something is visible: a read of a limited topic holds up the claims of others until the
-- transaction ends.
-- Called by: read_with_poll (way is read) and the polls of grouped reads.
CREATE OR REPLACE FUNCTION pgmq.poll(
  way text, queue_name text, vt integer, qty integer, max_poll_seconds integer, poll_interval_ms integer,
  conditional jsonb DEFAULT '{}'
)
RETURNS SETOF pgmq.message_record
LANGUAGE plpgsql
AS $$
DECLARE
  v_until      timestamptz := clock_timestamp() + make_interval(secs => coalesce(max_poll_seconds, 0));
  v_is_visible boolean;
BEGIN
  LOOP
    PERFORM pgmq.begin_read(queue_name, vt, qty);
    v_is_visible := EXISTS (
      SELECT FROM messages.message AS m
      WHERE m.topic = queue_name AND m.claim_id IS NULL AND m.available_at <= messages.now());
    IF v_is_visible AND way = 'read' THEN
      RETURN QUERY SELECT r.* FROM pgmq.read(queue_name, vt, qty, conditional) AS r;
    ELSIF v_is_visible THEN
      RETURN QUERY SELECT r.* FROM pgmq.read_groups(way, queue_name, vt, qty) AS r;
    END IF;
    IF (v_is_visible AND FOUND) OR clock_timestamp() >= v_until THEN
      RETURN;
    END IF;
    PERFORM pg_sleep(greatest(poll_interval_ms, 10) / 1000.0);
  END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION pgmq.read_with_poll(
  queue_name text, vt integer, qty integer, max_poll_seconds integer DEFAULT 5, poll_interval_ms integer DEFAULT 100,
  conditional jsonb DEFAULT '{}'
)
RETURNS SETOF pgmq.message_record LANGUAGE sql SECURITY DEFINER AS $$
  SELECT pgmq.poll('read', queue_name, vt, qty, max_poll_seconds, poll_interval_ms, conditional) $$;
CREATE OR REPLACE FUNCTION pgmq.read_grouped_with_poll(
  queue_name text, vt integer, qty integer, max_poll_seconds integer DEFAULT 5, poll_interval_ms integer DEFAULT 100
)
RETURNS SETOF pgmq.message_record LANGUAGE sql SECURITY DEFINER AS $$
  SELECT pgmq.poll('read_grouped', queue_name, vt, qty, max_poll_seconds, poll_interval_ms) $$;
CREATE OR REPLACE FUNCTION pgmq.read_grouped_rr_with_poll(
  queue_name text, vt integer, qty integer, max_poll_seconds integer DEFAULT 5, poll_interval_ms integer DEFAULT 100
)
RETURNS SETOF pgmq.message_record LANGUAGE sql SECURITY DEFINER AS $$
  SELECT pgmq.poll('read_grouped_rr', queue_name, vt, qty, max_poll_seconds, poll_interval_ms) $$;
CREATE OR REPLACE FUNCTION pgmq.read_grouped_head_with_poll(
  queue_name text, vt integer, qty integer, max_poll_seconds integer DEFAULT 5, poll_interval_ms integer DEFAULT 100
)
RETURNS SETOF pgmq.message_record LANGUAGE sql SECURITY DEFINER AS $$
  SELECT pgmq.poll('read_grouped_head', queue_name, vt, qty, max_poll_seconds, poll_interval_ms) $$;

-- Hand out messages and delete them at once.
CREATE OR REPLACE FUNCTION pgmq.pop(queue_name text, qty integer DEFAULT 1)
RETURNS SETOF pgmq.message_record
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_popped pgmq.message_record[];
BEGIN
  SELECT array_agg(r) INTO v_popped FROM pgmq.read(queue_name, 0, qty) AS r;
  PERFORM pgmq.delete(queue_name, ARRAY(SELECT p.msg_id FROM unnest(v_popped) AS p));
  RETURN QUERY SELECT p.* FROM unnest(v_popped) AS p;
END
$$;

-- Ending.

-- The ids that wait in the queue, and not for other messages: locked, in the order of their ids.
CREATE OR REPLACE FUNCTION pgmq.waiting(queue_name text, msg_ids bigint[])
RETURNS bigint[]
LANGUAGE plpgsql
AS $$
BEGIN
  PERFORM pgmq.check_queue(queue_name);
  RETURN ARRAY(
    SELECT m.id FROM messages.message AS m
    WHERE m.id = ANY (msg_ids) AND m.topic = queue_name AND m.claim_id IS NULL
      AND NOT EXISTS (SELECT FROM messages.blocked_message AS b WHERE b.id = m.id)
    ORDER BY m.id
    FOR UPDATE);
END
$$;

-- Move messages to the archive, as successes. Result: the ids that moved.
CREATE OR REPLACE FUNCTION pgmq.archive(queue_name text, msg_ids bigint[])
RETURNS SETOF bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids bigint[] := pgmq.waiting(queue_name, msg_ids);
BEGIN
  RETURN QUERY SELECT unnest(messages.archive(v_ids, NULL, 'success', NULL, NULL, 'pgmq', true));
END
$$;

CREATE OR REPLACE FUNCTION pgmq.archive(queue_name text, msg_id bigint)
RETURNS boolean LANGUAGE sql AS $$ SELECT count(*) > 0 FROM pgmq.archive(queue_name, ARRAY[msg_id]) $$;

-- Delete messages without a trace, not even in the audit: it is how readers end what they have processed. Result: the
-- ids that are gone.
CREATE OR REPLACE FUNCTION pgmq.delete(queue_name text, msg_ids bigint[])
RETURNS SETOF bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids bigint[] := pgmq.waiting(queue_name, msg_ids);
BEGIN
  IF v_ids <> '{}' THEN
    RETURN QUERY SELECT unnest(messages.erase(v_ids));
  END IF;
END
$$;

CREATE OR REPLACE FUNCTION pgmq.delete(queue_name text, msg_id bigint)
RETURNS boolean LANGUAGE sql AS $$ SELECT count(*) > 0 FROM pgmq.delete(queue_name, ARRAY[msg_id]) $$;

-- Make messages visible at another time. Result: these messages.
CREATE OR REPLACE FUNCTION pgmq.set_vt(queue_name text, msg_ids bigint[], vt timestamptz)
RETURNS SETOF pgmq.message_record
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids bigint[] := pgmq.waiting(queue_name, msg_ids);
BEGIN
  -- The time is not before this transaction began to write: claims would look for it too late.
  UPDATE messages.message AS m SET available_at = greatest(vt, messages.now()) WHERE m.id = ANY (v_ids);
  RETURN QUERY SELECT r.* FROM pgmq.records(v_ids, NULL) AS r;
END
$$;

CREATE OR REPLACE FUNCTION pgmq.set_vt(queue_name text, msg_ids bigint[], vt integer)
RETURNS SETOF pgmq.message_record LANGUAGE sql AS $$ SELECT pgmq.set_vt(queue_name, msg_ids, pgmq.after(vt)) $$;
CREATE OR REPLACE FUNCTION pgmq.set_vt(queue_name text, msg_id bigint, vt timestamptz)
RETURNS SETOF pgmq.message_record LANGUAGE sql AS $$ SELECT pgmq.set_vt(queue_name, ARRAY[msg_id], vt) $$;
CREATE OR REPLACE FUNCTION pgmq.set_vt(queue_name text, msg_id bigint, vt integer)
RETURNS SETOF pgmq.message_record LANGUAGE sql AS $$ SELECT pgmq.set_vt(queue_name, ARRAY[msg_id], pgmq.after(vt)) $$;

-- The rights of each role. A role that publishes sends, one that works reads and ends, one that operates does
-- everything.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pgmq FROM PUBLIC;
FOR v_function IN SELECT p.oid FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = 'pgmq'::regnamespace LOOP
  EXECUTE format('ALTER FUNCTION %s SET search_path TO pg_catalog, pg_temp', v_function);
END LOOP;
FOREACH v_grant SLICE 1 IN ARRAY ARRAY[
  ['messages_publisher', 'send|send_batch|send_topic|send_batch_topic|validate_routing_key|check_words|after'],
  ['messages_worker', 'read|read_with_poll|read_grouped.*|pop|archive|delete|set_vt|after'],
  ['messages_analyst', 'list_queues|metrics|metrics_all|list_notify_insert_throttles|list_topic_bindings|test_routing'],
  ['messages_operator', '.*']
] LOOP
  CONTINUE WHEN to_regrole(v_grant[1]) IS NULL;
  EXECUTE format('GRANT USAGE ON SCHEMA pgmq TO %I', v_grant[1]);
  FOR v_function IN
    SELECT p.oid FROM pg_catalog.pg_proc AS p
    WHERE p.pronamespace = 'pgmq'::regnamespace AND p.proname ~ ('^(' || v_grant[2] || ')$')
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', v_function, v_grant[1]);
  END LOOP;
END LOOP;
END
$pgmq$;
COMMIT;
