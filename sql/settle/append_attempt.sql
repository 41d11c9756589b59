-- Append an ended attempt to a message's history; at most 20 entries: the first stays (it dates the message), the
-- oldest others are dropped. p_run: the number of its run; NULL = it was claimed and never began, or it is unknown.
-- Called by: messages.retry, messages.defer. Locks: nothing.
-- The attempt that ends a message is not in its history: the archive row itself says who, when and how.
CREATE OR REPLACE FUNCTION messages.append_attempt(
  p_history jsonb, p_attempt integer, p_worker text, p_started timestamptz, p_ended timestamptz, p_outcome text,
  p_error text, p_run integer DEFAULT NULL
)
RETURNS jsonb
LANGUAGE sql
STABLE PARALLEL SAFE
AS $$
  SELECT CASE
           WHEN jsonb_array_length(coalesce(p_history, '[]')) >= 20 THEN p_history #- '{1}'
           ELSE coalesce(p_history, '[]')
         END
    || jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
         'attempt', p_attempt, 'run', p_run, 'worker', p_worker, 'started', p_started, 'ended', p_ended,
         'outcome', p_outcome, 'error', messages.cut_error(p_error, 1000))))
$$;
