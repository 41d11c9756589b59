-- Compare two objects: {"key": {"old": …, "new": …}} for each key that differs; long values are cut.
-- Called by: the trigger audit_change, edit. p_without: keys to ignore. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.jsonb_diff(p_old jsonb, p_new jsonb, p_without text[] DEFAULT '{}')
RETURNS jsonb
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT coalesce(jsonb_object_agg(c.key, jsonb_build_object('old', c.old, 'new', c.new) ORDER BY c.key), '{}')
  FROM (
    SELECT coalesce(o.key, n.key) AS key,
           CASE WHEN length(o.value::text) > 1000 THEN to_jsonb(left(o.value::text, 1000) || '…') ELSE o.value END AS old,
           CASE WHEN length(n.value::text) > 1000 THEN to_jsonb(left(n.value::text, 1000) || '…') ELSE n.value END AS new
    FROM jsonb_each(p_old) AS o
    FULL JOIN jsonb_each(p_new) AS n ON n.key = o.key
    WHERE coalesce(o.value, 'null') IS DISTINCT FROM coalesce(n.value, 'null')
  ) AS c
  WHERE c.key <> ALL (p_without)
$$;
