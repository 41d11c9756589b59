-- Archive messages whose time to live is over.
-- Called by: end_picked, expire_ttl, which hold the rows. Locks: nothing more. Result: how many.
CREATE OR REPLACE FUNCTION messages.end_expired(p_ids bigint[])
RETURNS bigint
LANGUAGE sql
AS $$
  SELECT cardinality(messages.archive(
    p_ids, array_fill(NULL::bigint, ARRAY[cardinality(p_ids)]), 'expired',
    array_fill('expired: it was not worked within its time to live'::text, ARRAY[cardinality(p_ids)]), NULL, NULL, true))::bigint
$$;
