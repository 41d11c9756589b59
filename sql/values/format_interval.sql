-- Format a duration for people, in one unit: 40 ms, 4.2 s, 17 min, 3 h, 12 d. Negative durations show as zero.
-- Called by: the functions of explain. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.format_interval(p_span interval)
RETURNS text
LANGUAGE sql
IMMUTABLE STRICT
AS $$
  SELECT CASE
    WHEN s < 1 THEN round(s * 1000) || ' ms'
    WHEN s < 10 THEN round(s, 1) || ' s'
    WHEN s < 120 THEN round(s) || ' s'
    WHEN s < 7200 THEN round(s / 60) || ' min'
    WHEN s < 172800 THEN round(s / 3600) || ' h'
    ELSE round(s / 86400) || ' d'
  END
  FROM greatest(extract(epoch FROM p_span), 0) AS s
$$;
