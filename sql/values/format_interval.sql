-- Format a duration for people, in one unit: 40ms, 4.2s, 17m, 3h, 12d. Less than a microsecond shows as 0s.
-- Called by: the functions of explain. Locks: nothing. The same in Python: pgrouse/values/format.py.
CREATE OR REPLACE FUNCTION messages.format_interval(p_span interval)
RETURNS text
LANGUAGE sql
IMMUTABLE STRICT
AS $$
  SELECT CASE
    WHEN s < 0.000001 THEN '0s'
    ELSE (
      SELECT trim_scale(n) || u.unit
      FROM (
        VALUES ('us', 0.000001, 1000), ('ms', 0.001, 1000), ('s', 1, 120), ('m', 60, 120), ('h', 3600, 48),
        ('d', 86400, NULL))
        AS u (unit, size, below)
      CROSS JOIN LATERAL round(s / u.size, CASE WHEN s / u.size < 9.95 THEN 1 ELSE 0 END) AS n
      WHERE n < u.below OR u.below IS NULL
      ORDER BY u.size LIMIT 1
    )
  END
  FROM extract(epoch FROM p_span) AS s
$$;
