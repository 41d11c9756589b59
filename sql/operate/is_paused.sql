-- Returns whether a pause is in force: it began, and its end, if it has one, is in the future.
--
-- Result: true or false; NULL only if `p_now` is NULL and the pause has an end.
-- Errors: none.
-- Locks: none.
-- Called by: `pause`, `resume`, `claim_policy`, `topic_state`, and the view `channel_state`.
-- Inside: it has no settings of its own, so that it becomes part of its caller's statement; so its operator is
-- qualified.
CREATE OR REPLACE FUNCTION messages.is_paused(p_paused_at timestamptz, p_resume_at timestamptz, p_now timestamptz)
RETURNS boolean
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT p_paused_at IS NOT NULL AND (p_resume_at IS NULL OR p_resume_at OPERATOR(pg_catalog.>) p_now)
$$;
