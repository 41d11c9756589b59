-- Creates a batch: a set of messages whose ends are counted together. Publish messages into it with `p_batch_id` of
-- `messages.publish`, or with the column `batch_id` of an INSERT or a COPY; then close it with `messages.close_batch`.
-- (A batch handler, which gets several claimed messages in one call, has nothing to do with it.)
--
-- Each of the three topics gets one message, at most once in the life of the batch, in the transaction in which it is
-- so. Its payload is
-- `{"batch", "name", "event", "counts": {"total", "live", "succeeded", "dead", "cancelled"}, "metadata"}`, and of a
-- failure `dead_message`, the id of the message that died. Policies of the topic hold for it; if they refuse it (the
-- topic is full), no settle fails: the tick tries again.
--
-- Arguments: `p_on_finish`: for when the batch is closed and all its messages have ended, however they did.
-- `p_on_failure`: for when the first of its messages dies, also while it is open. `p_on_success`: for when it is
-- finished, and none of its messages is dead or was cancelled; if that is so only after a redrive, then after that.
-- `p_metadata`: any object of at most 64 KiB as text. `p_name`: for people.
-- Result: the id of the batch.
-- Errors: 23514 for a name or a topic that cannot be, and for metadata that are too large; 22023 for metadata that are
-- no object; PGR05 for a topic that ends with `.dlq`.
-- Locks: the rows it inserts.
-- Repeat: creates another batch.
-- Called by: publishers.
CREATE OR REPLACE FUNCTION messages.create_batch(
  p_name text DEFAULT NULL, p_on_finish text DEFAULT NULL, p_on_failure text DEFAULT NULL,
  p_on_success text DEFAULT NULL, p_metadata jsonb DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_id       bigint;
  v_reserved text := (
    SELECT t.topic FROM unnest(ARRAY[p_on_finish, p_on_failure, p_on_success]) AS t (topic)
    WHERE t.topic LIKE '%.dlq' LIMIT 1);
BEGIN
  IF v_reserved IS NOT NULL THEN
    RAISE EXCEPTION 'topic % is reserved: names that end with .dlq are those of dead letters', v_reserved
      USING ERRCODE = 'PGR05', HINT = 'use a topic with another name';
  END IF;
  IF jsonb_typeof(p_metadata) <> 'object' THEN
    RAISE EXCEPTION 'metadata of a batch are a JSON %', jsonb_typeof(p_metadata)
      USING ERRCODE = '22023', HINT = 'use an object';
  END IF;
  INSERT INTO messages.batch (name, metadata, created_by)
  VALUES (p_name, p_metadata, messages.actor())
  RETURNING id INTO v_id;
  INSERT INTO messages.batch_callback (batch_id, event, topic)
  SELECT v_id, c.event, c.topic
  FROM (VALUES ('finish', p_on_finish), ('failure', p_on_failure), ('success', p_on_success)) AS c (event, topic)
  WHERE c.topic IS NOT NULL;
  -- After the row is written, whose lock prune_batches respects.
  IF pg_sequence_last_value('messages.batch_flag') = 1 THEN
    PERFORM setval('messages.batch_flag', 2);
  END IF;
  RETURN v_id;
END
$$;
