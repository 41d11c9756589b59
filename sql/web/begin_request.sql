-- Begin a request that must take effect only once, however often it is sent.
-- Called by: web servers, first in the transaction of the request; end_request comes last. Of two at the same time the second waits for the
-- first: if that commits, the second gets its answer; if it fails or its server dies, the second runs as the first.
-- p_digest: of the request; p_caller: each caller has keys of its own. Answers are kept for 24 hours, until prune_web deletes them.
-- Locks: the row, until the transaction ends. Result: the status and answer of the first; no row: this is the first.
-- Errors: 22023 for a key that was used for another request.
CREATE OR REPLACE FUNCTION messages.begin_request(p_caller text, p_key text, p_digest bytea)
RETURNS TABLE (status smallint, answer text)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_found messages.web_request;
BEGIN
  -- Who is forgotten between the two looks begins again; each further try needs a prune in between.
  FOR v_try IN 1..10 LOOP
    INSERT INTO messages.web_request AS r (caller, key, digest) VALUES (p_caller, p_key, p_digest) ON CONFLICT DO NOTHING;
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
