-- Archive messages whose TTL is over.
-- Called by: archive_unclaimable, expire_messages, which hold the rows. Locks: nothing more. Result: how many.
CREATE OR REPLACE FUNCTION messages.archive_expired(p_ids bigint[])
RETURNS bigint
LANGUAGE sql
AS $$
  SELECT cardinality(messages.archive(
    p_ids, NULL, 'expired',
    array_fill('expired: it was not processed within its time to live'::text, ARRAY[cardinality(p_ids)]),
    NULL, NULL, true))::bigint
$$;
