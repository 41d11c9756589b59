-- Format the result of slot_holders for people: the first three as worker (message n).
-- Called by: explain_limit, explain_channel. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.format_slot_holders(p_held jsonb)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT string_agg(format('%s (message %s)', h.place ->> 'worker', h.place ->> 'id'), ', ' ORDER BY h.n)
      || CASE WHEN jsonb_array_length(p_held) > 3 THEN ', ...' ELSE '' END
  FROM jsonb_array_elements(p_held) WITH ORDINALITY AS h (place, n)
  WHERE h.n <= 3
$$;
