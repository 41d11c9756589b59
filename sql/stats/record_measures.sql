-- Records what a worker has measured since its last report, for `messages.measure` and `messages.worker_measure`.
-- Nothing depends on it.
--
-- Arguments: `p_report`: the number of the report, increasing. `p_measures`: one element per topic, with the increase
-- of its counts and histograms since the last report: `[{"topic": "orders.created", "success": 12, "waits": {"7": 12},
-- "runs": {"1": 12}}]`. The keys of a histogram are the numbers of its buckets, 1 to 48.
-- Result: true if the report is recorded, by this call or an earlier one. NULL if it is not, because another
-- transaction holds the worker's row: send it again later, under the same number. false if the registry does not know
-- the worker: call `register_worker`, then send it again.
-- Errors: 22023 for a bucket that does not exist or an invalid count, 23502 without a topic, 55P03 if the rows of this
-- minute could not be locked within a second.
-- Locks: the worker's own row, without waiting, then rows of this minute by topic.
-- Repeat: safe: a number that is already recorded adds nothing.
-- Called by: the heartbeat of daemons, every few seconds.
-- Inside: No other worker writes its row of this minute. Reports count for the current minute: a late report falls into
-- a later minute.
CREATE OR REPLACE FUNCTION messages.record_measures(p_name text, p_report bigint, p_measures jsonb)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET lock_timeout = '1s'
AS $$
DECLARE
  v_is_in boolean;
BEGIN
  IF jsonb_path_exists(p_measures, '$[*].* ? (@ < 0)') THEN
    RAISE EXCEPTION 'a count of worker % is below zero', p_name
      USING ERRCODE = '22023', HINT = 'report what was added since the report before';
  END IF;
  WITH mine AS (
    SELECT w.name FROM messages.worker AS w
    WHERE w.name = p_name AND w.measured < p_report FOR NO KEY UPDATE SKIP LOCKED
  )
  UPDATE messages.worker AS w SET measured = p_report FROM mine WHERE w.name = mine.name;
  IF NOT FOUND THEN
    SELECT w.measured >= p_report INTO v_is_in FROM messages.worker AS w WHERE w.name = p_name;
    RETURN CASE WHEN NOT FOUND THEN false WHEN v_is_in THEN true END;
  END IF;
  INSERT INTO messages.measure AS m (
    minute, topic, success, rejected, failed, lock_expired, retried, deferred, released, lost, waits, runs, wakes)
  SELECT
    date_trunc('minute', messages.now()), e.topic,
    coalesce(e.success, 0), coalesce(e.rejected, 0), coalesce(e.failed, 0), coalesce(e.lock_expired, 0),
    coalesce(e.retried, 0), coalesce(e.deferred, 0), coalesce(e.released, 0), coalesce(e.lost, 0),
    messages.pack_histogram(e.waits), messages.pack_histogram(e.runs), messages.pack_histogram(e.wakes)
  FROM jsonb_to_recordset(p_measures) AS e (
    topic text, success bigint, rejected bigint, failed bigint, lock_expired bigint, retried bigint, deferred bigint,
    released bigint, lost bigint,
    waits jsonb, runs jsonb, wakes jsonb)
  -- All workers in the same order, so that none waits for another that waits for it.
  ORDER BY e.topic COLLATE "C"
  ON CONFLICT ON CONSTRAINT measure_pkey DO UPDATE
  SET success = m.success + excluded.success, rejected = m.rejected + excluded.rejected,
      failed = m.failed + excluded.failed,
      lock_expired = m.lock_expired + excluded.lock_expired, retried = m.retried + excluded.retried,
      deferred = m.deferred + excluded.deferred,
      released = m.released + excluded.released, lost = m.lost + excluded.lost,
      waits = m.waits + excluded.waits, runs = m.runs + excluded.runs, wakes = m.wakes + excluded.wakes;
  INSERT INTO messages.worker_measure AS m (
    minute, worker, success, rejected, failed, lock_expired, retried, deferred, released, lost, waits, runs, wakes)
  SELECT
    date_trunc('minute', messages.now()), p_name,
    coalesce(sum(e.success), 0), coalesce(sum(e.rejected), 0), coalesce(sum(e.failed), 0),
    coalesce(sum(e.lock_expired), 0),
    coalesce(sum(e.retried), 0), coalesce(sum(e.deferred), 0), coalesce(sum(e.released), 0), coalesce(sum(e.lost), 0),
    coalesce(sum(messages.pack_histogram(e.waits)), 0), coalesce(sum(messages.pack_histogram(e.runs)), 0),
    coalesce(sum(messages.pack_histogram(e.wakes)), 0)
  FROM jsonb_to_recordset(p_measures) AS e (
    success bigint, rejected bigint, failed bigint, lock_expired bigint, retried bigint, deferred bigint,
    released bigint, lost bigint,
    waits jsonb, runs jsonb, wakes jsonb)
  ON CONFLICT ON CONSTRAINT worker_measure_pkey DO UPDATE
  SET success = m.success + excluded.success, rejected = m.rejected + excluded.rejected,
      failed = m.failed + excluded.failed,
      lock_expired = m.lock_expired + excluded.lock_expired, retried = m.retried + excluded.retried,
      deferred = m.deferred + excluded.deferred,
      released = m.released + excluded.released, lost = m.lost + excluded.lost,
      waits = m.waits + excluded.waits, runs = m.runs + excluded.runs, wakes = m.wakes + excluded.wakes;
  RETURN true;
END
$$;

-- Pack a histogram into one number, as messages.measure keeps it, from its counts by bucket: {"7": 12, "8": 3}.
-- Called by: record_measures. Locks: nothing. Result: 0 for NULL and for no counts.
-- Errors: 22023 for an unknown bucket, or a count that is too large for one.
CREATE OR REPLACE FUNCTION messages.pack_histogram(p_counts jsonb)
RETURNS numeric
LANGUAGE plpgsql
IMMUTABLE
AS $$
DECLARE
  v_packed numeric := 0;
  v_each   record;
BEGIN
  FOR v_each IN SELECT e.key::integer AS bucket, e.value::bigint AS count FROM jsonb_each_text(p_counts) AS e LOOP
    IF v_each.bucket NOT BETWEEN 1 AND 48 OR v_each.count NOT BETWEEN 0 AND 1000000000 THEN
      RAISE EXCEPTION 'bucket % of a histogram counts %', v_each.bucket, v_each.count
        USING ERRCODE = '22023', HINT = 'use buckets 1 to 48 and counts from 0 to 1000000000';
    END IF;
    v_packed := v_packed + (v_each.count::text || repeat('0', 12 * (48 - v_each.bucket)))::numeric;
  END LOOP;
  RETURN v_packed;
END
$$;
