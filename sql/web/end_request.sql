-- Save the answer of a request, for a client that sends it again.
-- Called by: web servers, in the transaction that began it. Locks: the row, which is the transaction's own.
CREATE OR REPLACE FUNCTION messages.end_request(p_caller text, p_key text, p_status integer, p_answer text)
RETURNS void
LANGUAGE sql
SECURITY DEFINER
AS $$
  UPDATE messages.web_request AS r SET status = p_status, answer = p_answer WHERE r.caller = p_caller AND r.key = p_key
$$;
