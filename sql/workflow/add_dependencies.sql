-- Let a message that was just inserted wait for others.
-- Called by: publish, in its transaction. p_before, p_died: for what it waits, and how those of them ended that have.
-- p_available_at, p_delay, p_ttl: what its publisher wants of times; they count from its release.
-- Where it shall be cancelled if one of them ended badly, and one has, it is cancelled here.
-- Locks: the rows it inserts.
CREATE OR REPLACE FUNCTION messages.park(
  p_id bigint, p_before bigint[], p_died text[], p_after_failed text, p_available_at timestamptz, p_delay interval, p_ttl interval
)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_dead record;
BEGIN
  SELECT d.id, d.died INTO v_dead FROM unnest(p_before, p_died) AS d (id, died) WHERE d.died IS NOT NULL LIMIT 1;
  IF v_dead.id IS NOT NULL AND p_after_failed = 'cancel' THEN
    PERFORM messages.archive(
      ARRAY[p_id], ARRAY[NULL::bigint], 'cancelled', ARRAY[format('cancelled: message %s, after which it comes, ended as %s', v_dead.id, v_dead.died)],
      NULL, NULL, true);
    RETURN;
  END IF;
  INSERT INTO messages.parked (id, after_failed, available_at, delay, ttl, width)
  VALUES (p_id, p_after_failed, p_available_at, p_delay, p_ttl, cardinality(p_before));
  INSERT INTO messages.edge (successor_id, predecessor_id, died)
  SELECT p_id, e.id, e.died FROM unnest(p_before, p_died) AS e (id, died);
  PERFORM messages.mark_awaited();
END
$$;
