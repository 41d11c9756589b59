-- Write messages.inherited_policy from the rows of messages.topic: see there.
-- Called by: the trigger topic_changed, in the transaction of the change, once it has locked the mutex 'policies'.
-- Locks: the rows it changes. The columns are those of the table, so that a new setting is inherited as well.
CREATE OR REPLACE FUNCTION messages.inherit_policies()
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_columns text;
  v_values  text;
BEGIN
  DELETE FROM messages.inherited_policy AS d WHERE NOT EXISTS (SELECT FROM messages.topic AS t WHERE t.topic = d.topic);
  -- The columns of a pause stay together: those of the pause that ends last.
  SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum),
         string_agg(
           CASE
             WHEN a.attname = 'updated_at' THEN 'max(o.updated_at)'
             WHEN a.attname IN ('paused_at', 'resume_at', 'paused_by', 'paused_reason') THEN format(
               '(array_agg(o.%I ORDER BY coalesce(o.resume_at, ''infinity'') DESC, o.nth) '
                 'FILTER (WHERE o.paused_at IS NOT NULL))[1]', a.attname)
             ELSE format('(array_agg(o.%1$I ORDER BY o.nth) FILTER (WHERE o.%1$I IS NOT NULL))[1]', a.attname)
           END,
           ', ' ORDER BY a.attnum)
  INTO v_columns, v_values
  FROM pg_attribute AS a
  WHERE a.attrelid = 'messages.topic'::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> 'topic';
  EXECUTE format(
    $write$
      INSERT INTO messages.inherited_policy AS d (topic, %1$s)
      SELECT o.pattern, %2$s
      FROM (
        SELECT p.topic AS pattern, coalesce(array_position(c.patterns, q.topic), 1000) AS nth, q.*
        FROM messages.topic AS p
        CROSS JOIN LATERAL (SELECT messages.patterns_of(p.topic) AS patterns) AS c
        JOIN messages.topic AS q ON q.topic = '*' OR q.topic = ANY (c.patterns)
        WHERE p.topic LIKE '%%*'
      ) AS o
      GROUP BY o.pattern
      ON CONFLICT (topic) DO UPDATE SET (%1$s) = (SELECT %3$s)
      WHERE row(d.*) IS DISTINCT FROM row(excluded.*)
    $write$,
    v_columns, v_values, 'excluded.' || replace(v_columns, ', ', ', excluded.'));
END
$$;
