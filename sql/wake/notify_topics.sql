-- Wake armed sleepers: one NOTIFY new_message for each topic with a sleeper that would otherwise look later than p_due,
-- or with notify = 'always'.
-- Called by: functions that make existing messages ready (retry, return_attempts, raise_low_water). An INSERT notifies
-- by a trigger. Locks and rules: as notify_inserted.
CREATE OR REPLACE FUNCTION messages.notify_topics(p_topics text[], p_due timestamptz)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  PERFORM messages.notify_inserted(p_topics, array_fill(p_due, ARRAY[coalesce(cardinality(p_topics), 0)]), NULL);
END
$$;
