-- Block a message that was just inserted until others have ended.
-- Called by: publish, in its transaction. p_predecessors, p_failed_results: for what it waits, and how those of them ended that have.
-- p_available_at, p_delay, p_ttl: the publisher's times; they count from its release.
-- If p_after_failed is cancel and a predecessor already ended badly, the message is cancelled here.
-- Locks: the rows it inserts.
CREATE OR REPLACE FUNCTION messages.add_dependencies(
  p_id bigint, p_predecessors bigint[], p_failed_results text[], p_after_failed text, p_available_at timestamptz, p_delay interval, p_ttl interval
)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_dead record;
BEGIN
  SELECT d.id, d.failed_result INTO v_dead FROM unnest(p_predecessors, p_failed_results) AS d (id, failed_result) WHERE d.failed_result IS NOT NULL LIMIT 1;
  IF v_dead.id IS NOT NULL AND p_after_failed = 'cancel' THEN
    PERFORM messages.archive(
      ARRAY[p_id], NULL, 'cancelled', ARRAY[format('cancelled: message %s, after which it comes, ended as %s', v_dead.id, v_dead.failed_result)],
      NULL, NULL, true);
    RETURN;
  END IF;
  INSERT INTO messages.blocked_message (id, after_failed, available_at, delay, ttl, width)
  VALUES (p_id, p_after_failed, p_available_at, p_delay, p_ttl, cardinality(p_predecessors));
  INSERT INTO messages.dependency (successor_id, predecessor_id, failed_result)
  SELECT p_id, e.id, e.failed_result FROM unnest(p_predecessors, p_failed_results) AS e (id, failed_result);
  PERFORM messages.raise_awaited_flag();
END
$$;
