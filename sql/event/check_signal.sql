-- Returns what a signed URL of `messages.sign_signal` is worth now.
--
-- Arguments: `p_until`, `p_number`, `p_signature`: those of its query.
-- Result: `valid`: it may signal; `used`: that signal has come, or the wait for it is over; `over`: its time has
-- passed; `ended`: the message has ended; `invalid`: its signature is wrong.
-- Errors: none.
-- Locks: none.
-- Called by: web servers, before they show its page, and before they signal.
-- Inside: Two hashes with a key are compared, so that the time of the comparison tells nothing about the signature.
CREATE OR REPLACE FUNCTION messages.check_signal(
  p_id bigint, p_name text, p_until bigint, p_number integer, p_signature text
)
RETURNS text
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  IF (
    SELECT sha256(k.outer_key || convert_to(p_signature, 'UTF8'))
      = sha256(k.outer_key || convert_to(
        encode(messages.signal_signature(p_id, p_name, p_until, p_number), 'hex'), 'UTF8'))
    FROM messages.signing_key AS k) IS NOT TRUE
  THEN
    RETURN 'invalid';
  END IF;
  IF p_until <= extract(epoch FROM messages.now()) THEN
    RETURN 'over';
  END IF;
  IF (SELECT true FROM messages.message AS m WHERE m.id = p_id) IS NULL THEN
    RETURN 'ended';
  END IF;
  RETURN CASE WHEN messages.count_events(p_id, p_name) >= p_number THEN 'used' ELSE 'valid' END;
END
$$;
