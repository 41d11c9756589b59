-- Add what a statement inserted into topics with max_depth, and refuse the statement if it does not fit.
-- Called by: the trigger apply_publish_policies, once per statement. p_topics in ascending order; p_counts: what was
-- inserted; p_refusable: how many of those may be refused. What the queue itself inserts (redrives, dead letters) is
-- only counted, and waits for no lock: it adds rows, as subtract_depth does.
-- Locks: the other topics' rows of depth in their order, until the transaction ends.
CREATE OR REPLACE FUNCTION messages.add_depth(p_topics text[], p_counts bigint[], p_refusable bigint[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_each record;
  v_rows bigint;
BEGIN
  FOR v_each IN
    SELECT e.topic, e.inserted, e.refusable, a.max_depth
    FROM unnest(p_topics, p_counts, p_refusable) AS e (topic, inserted, refusable)
    CROSS JOIN LATERAL messages.publish_policy(e.topic) AS a
    WHERE a.max_depth IS NOT NULL
  LOOP
    IF v_each.refusable = 0 THEN
      INSERT INTO messages.depth_change (topic, change) VALUES (v_each.topic, v_each.inserted);
      CONTINUE;
    END IF;
    v_rows := messages.lock_depth(v_each.topic, v_each.inserted) + v_each.inserted;
    IF v_rows > v_each.max_depth THEN
      RAISE EXCEPTION 'topic % is full: max_depth is %, and with % more it would hold %',
        v_each.topic, v_each.max_depth, v_each.inserted, v_rows
        USING ERRCODE = 'PGR01',
              HINT = 'publish again when messages have ended, raise max_depth, or set on_full to drop';
    END IF;
    UPDATE messages.depth AS d SET rows = v_rows WHERE d.topic = v_each.topic;
  END LOOP;
END
$$;
