-- Whether a pause is in force: it began, and its end, if it has one, is in the future.
-- Called by: pause, resume, explain. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.is_paused(p_paused_at timestamptz, p_resume_at timestamptz, p_now timestamptz)
RETURNS boolean
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT p_paused_at IS NOT NULL AND (p_resume_at IS NULL OR p_resume_at > p_now)
$$;
