-- Signs a URL with which anyone may signal one event to one message until a time, and nothing else. The web server
-- shows such a URL as a page with a button.
--
-- Arguments: `p_name`: as in `messages.signal`. `p_until`: at most 366 days from now, cut to seconds. `p_number`:
-- which signal of this name it may be: the URL signals only if fewer than this many have come, so it counts once.
-- Result: the signature, 64 hexadecimal digits. The path of the URL is `/signal/ID/NAME`, its query
-- `until=SECONDS&number=NUMBER&signature=SIGNATURE`, with the seconds since 1970.
-- Errors: 22004 for NULL; 22023 for an invalid name, number or time.
-- Locks: none.
-- Called by: workers, publishers and operators that hand such a URL out.
-- Inside: The key never leaves the database: not even operators read it, and all web servers share it.
CREATE OR REPLACE FUNCTION messages.sign_signal(
  p_id bigint, p_name text, p_until timestamptz, p_number integer DEFAULT 1
)
RETURNS text
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  PERFORM messages.check_event_name(p_name);
  IF num_nulls(p_id, p_until, p_number) > 0 THEN
    RAISE EXCEPTION 'sign_signal needs a message, a time and a number' USING ERRCODE = '22004';
  END IF;
  IF p_number < 1 THEN
    RAISE EXCEPTION 'number of the signal "%" is %', p_name, p_number USING ERRCODE = '22023', HINT = 'use 1 or more';
  END IF;
  IF p_until > messages.now() + interval '366 days' OR NOT isfinite(p_until) THEN
    RAISE EXCEPTION 'a signed URL is to hold until %', p_until
      USING ERRCODE = '22023', HINT = 'use a time at most 366 days from now';
  END IF;
  RETURN encode(messages.signal_signature(p_id, p_name, floor(extract(epoch FROM p_until))::bigint, p_number), 'hex');
END
$$;
