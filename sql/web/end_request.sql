-- Stores the answer of a request for callers that send it again, in the transaction that began it.
--
-- Errors: none.
-- Locks: the row, which the transaction already holds.
-- Called by: web servers.
CREATE OR REPLACE FUNCTION messages.end_request(p_caller text, p_key text, p_status integer, p_answer text)
RETURNS void
LANGUAGE sql
SECURITY DEFINER
AS $$
  UPDATE messages.web_request AS r SET status = p_status, answer = p_answer WHERE r.caller = p_caller AND r.key = p_key
$$;
