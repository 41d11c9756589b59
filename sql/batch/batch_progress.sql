-- Returns the state and the counts of a batch, as the view `messages.batch_state` has them, and its metadata, to the
-- role that created it, and to roles that may read all batches.
--
-- Result: one row; no row if there is no such batch, or if it is another role's.
-- Errors: none.
-- Locks: none.
-- Called by: publishers, operators.
CREATE OR REPLACE FUNCTION messages.batch_progress(p_id bigint)
RETURNS TABLE (
  id bigint, name text, state text, total bigint, live bigint, succeeded bigint, dead bigint, cancelled bigint,
  created_at timestamptz, created_by text, closed_at timestamptz, cancelled_at timestamptz, finished_at timestamptz,
  first_ended_at timestamptz, last_ended_at timestamptz, estimated_end timestamptz, callbacks jsonb, metadata jsonb
)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN QUERY
  SELECT s.id, s.name, s.state, s.total, s.live, s.succeeded, s.dead, s.cancelled, s.created_at, s.created_by,
         s.closed_at, s.cancelled_at, s.finished_at, s.first_ended_at, s.last_ended_at, s.estimated_end, s.callbacks,
         b.metadata::jsonb
  FROM messages.batch AS b
  JOIN messages.batch_state AS s ON s.id = p_id
  WHERE b.id = p_id
    AND (b.role = session_user OR has_column_privilege(session_user, 'messages.batch', 'metadata', 'SELECT'));
END
$$;
