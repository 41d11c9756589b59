-- The HMAC-SHA-256 of what a signed URL allows. Numbers come before the name, so no two URLs sign the same text.
-- Called by: sign_signal, check_signal. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.signal_signature(p_id bigint, p_name text, p_until bigint, p_number integer)
RETURNS bytea
LANGUAGE sql
STABLE
AS $$
  SELECT sha256(
    k.outer_key || sha256(
      k.inner_key || convert_to(format('signal:%s:%s:%s:%s', p_id, p_until, p_number, p_name), 'UTF8')))
  FROM messages.signing_key AS k
$$;
