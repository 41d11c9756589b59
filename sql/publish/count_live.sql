-- Count the live messages of a topic: ready, delayed or running.
-- Called by: lock_depth, recount_depth. Locks: nothing. Each part reads one index; an OR of them would read the table.
CREATE OR REPLACE FUNCTION messages.count_live(p_topic text)
RETURNS bigint
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  RETURN (SELECT count(*) FROM messages.message AS m
          WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NULL)
       + (SELECT count(*) FROM messages.message AS m
          WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL)
       + (SELECT count(*) FROM messages.message AS m WHERE m.topic = p_topic AND m.claim_id IS NOT NULL);
END
$$;
