-- The holders of the slots of a topic or channel, if all p_limit slots are taken.
-- Called by: explain_limit, explain_channel. Locks: nothing. Result: [{"worker", "id"}], the first 20; NULL = a slot is
-- free.
CREATE OR REPLACE FUNCTION messages.slot_holders(p_topic text, p_channel text, p_limit integer)
RETURNS jsonb
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_held  jsonb;
  v_count bigint;
BEGIN
  SELECT count(*), jsonb_agg(jsonb_build_object('worker', h.locked_by, 'id', h.id)) FILTER (WHERE h.n <= 20)
  INTO v_count, v_held
  FROM (
    SELECT m.locked_by, m.id, row_number() OVER () AS n
    FROM messages.message AS m
    WHERE m.topic = p_topic AND (p_channel IS NULL OR m.channel = p_channel) AND m.claim_id IS NOT NULL
    LIMIT p_limit
  ) AS h;
  RETURN CASE WHEN v_count >= p_limit THEN v_held END;
END
$$;
