-- Put dead messages back: each becomes a new message that knows its ancestor (redriven_from); the archive row stays as it is.
-- Called by: operators. Repeated or concurrent calls do nothing twice. Locks: the rows that it inserts, see redrive_rows.
-- p_rate: how many become available per second, the first after p_delay; NULL = all at once. p_force: ignore max_redrives.
-- Result: one row per id. outcome 'redriven'; 'keyless' (put back without its key); 'superseded' (a newer message of its key waits:
-- message_id, if it is not one of the same call); 'redriven_before' (as message_id); 'too_often' (max_redrives); 'too_large' (as text; by
-- another payload it comes back); 'not_dead'.
-- The insert notifies like every publish.
CREATE OR REPLACE FUNCTION messages.redrive(
  p_ids bigint[], p_rate double precision DEFAULT NULL, p_delay interval DEFAULT '0', p_force boolean DEFAULT false
)
RETURNS TABLE (archived_id bigint, message_id bigint, outcome text)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids      bigint[];
  v_new      bigint[];
  v_outcomes text[];
BEGIN
  SELECT array_agg(b.archived_id), array_agg(b.message_id), array_agg(b.outcome)
  INTO v_ids, v_new, v_outcomes
  FROM messages.redrive_rows(p_ids, NULL, p_rate, p_delay, p_force) AS b;
  PERFORM messages.audit_redrive('redrive', v_ids, v_new, v_outcomes, jsonb_build_object('rate', p_rate, 'delay', nullif(p_delay, '0'), 'force', nullif(p_force, false)));
  RETURN QUERY SELECT b.* FROM unnest(v_ids, v_new, v_outcomes) AS b (archived_id, message_id, outcome);
END
$$;
