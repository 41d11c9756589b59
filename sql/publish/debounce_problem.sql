-- Finds what is wrong with the arguments of a publish that is debounced or throttled.
-- Called by: publish. Locks: nothing. Result: NULL = nothing.
CREATE OR REPLACE FUNCTION messages.debounce_problem(
  p_key text, p_on_conflict text, p_delay interval, p_available_at timestamptz, p_after bigint[], p_debounce interval,
  p_max_delay interval, p_throttle interval
)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT CASE
    WHEN num_nonnulls(p_debounce, p_throttle) = 2 THEN 'debounce and throttle were both given: use one of them'
    WHEN num_nonnulls(p_debounce, p_throttle) = 0 THEN 'max_delay was given and debounce was not: give both'
    WHEN p_throttle IS NOT NULL AND p_max_delay IS NOT NULL
      THEN 'max_delay was given with throttle: it is for debounce'
    WHEN p_key IS NULL THEN 'debounce or throttle was given and there is no key: give one'
    WHEN p_debounce NOT BETWEEN '0' AND '36500 days'
      THEN format('debounce is %s: use an interval from 0 to 36500 days', p_debounce)
    WHEN p_max_delay NOT BETWEEN p_debounce AND '36500 days'
      THEN format('max_delay is %s: use an interval from debounce, %s, to 36500 days', p_max_delay, p_debounce)
    WHEN p_throttle NOT BETWEEN '0' AND '36500 days'
      THEN format('throttle is %s: use an interval from 0 to 36500 days', p_throttle)
    WHEN p_debounce IS NOT NULL AND num_nonnulls(p_delay, p_available_at) > 0
      THEN 'debounce was given with delay or available_at: the delay is debounce'
    WHEN p_debounce IS NOT NULL AND cardinality(p_after) > 0
      THEN 'debounce and after were both given: what waits for others has no time that could be moved'
    WHEN p_debounce IS NOT NULL AND p_on_conflict = 'ignore'
      THEN 'debounce was given and on_conflict is ignore: use replace or append'
    WHEN p_throttle IS NOT NULL AND p_on_conflict IN ('replace', 'append')
      THEN format('throttle was given and on_conflict is %s: use ignore', p_on_conflict)
  END
$$;
