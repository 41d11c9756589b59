-- Record ends that successors must learn of: the trigger propagate_ends_at_commit propagates them when the transaction
-- commits.
-- Called by: announce_ends, transfer_to_redriven. p_result: as in the archive, or redriven.
-- The trigger knows the ends of its transaction from the setting messages.end_events, which a savepoint rolls back
-- together with the row.
-- Locks: the rows it inserts.
CREATE OR REPLACE FUNCTION messages.add_end_events(p_ids bigint[], p_result text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  -- Before the INSERT: a transaction may have set its constraints to be immediate.
  PERFORM set_config(
    'messages.end_events',
    concat_ws(',', nullif(current_setting('messages.end_events', true), ''), array_to_string(p_ids, ',')), true);
  INSERT INTO messages.end_event (id, result)
  SELECT e.id, p_result FROM unnest(p_ids) AS e (id)
  ON CONFLICT (id) DO UPDATE SET result = excluded.result;
END
$$;
