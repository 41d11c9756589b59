-- Begins a request that must be executed only once, however often it is sent. It is the first statement of the
-- transaction that executes the request, and `end_request` is the last. If two identical requests arrive at the same
-- time, the second waits for the first. If the first commits, the second gets its answer; if the first fails, or its
-- server dies, the second is executed as the first. Answers are kept for 24 hours.
--
-- Arguments: `p_caller`: each caller has its own keys. `p_digest`: the digest of the request.
-- Result: status and answer of the first request; no row: this is the first.
-- Errors: 22023 for a key that was used with a different request before.
-- Locks: the row, until the transaction ends.
-- Called by: web servers, first in the transaction of the request.
CREATE OR REPLACE FUNCTION messages.begin_request(p_caller text, p_key text, p_digest bytea)
RETURNS TABLE (status smallint, answer text)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_found messages.web_request;
BEGIN
  -- A request that is forgotten between the two looks begins again; each further try needs a prune in between.
  FOR v_try IN 1..10 LOOP
    INSERT INTO messages.web_request AS r (caller, key, digest) VALUES (p_caller, p_key, p_digest)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN;
    END IF;
    SELECT r.* INTO v_found FROM messages.web_request AS r WHERE r.caller = p_caller AND r.key = p_key;
    EXIT WHEN FOUND;
  END LOOP;
  IF v_found.digest IS DISTINCT FROM p_digest THEN
    RAISE EXCEPTION 'this Idempotency-Key came with another request before'
      USING ERRCODE = '22023', HINT = 'use a new key for each request, and the same one only to send it again';
  END IF;
  RETURN QUERY SELECT v_found.status, v_found.answer;
END
$$;
