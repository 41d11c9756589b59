-- Delete expired sessions of the web server, and saved answers that are older than 24 hours.
-- Called by: prune. Locks: the rows it deletes, at most 10,000 of each kind, skipping those that others hold. Result:
-- how many.
CREATE OR REPLACE FUNCTION messages.prune_web()
RETURNS bigint
LANGUAGE sql
SECURITY DEFINER
AS $$
  WITH sessions AS (
    DELETE FROM messages.web_session AS s
    WHERE s.digest = ANY (ARRAY(
      SELECT o.digest FROM messages.web_session AS o
      WHERE o.expires_at < (SELECT clock_timestamp()) LIMIT 10000 FOR UPDATE SKIP LOCKED))
    RETURNING 1
  ), requests AS (
    DELETE FROM messages.web_request AS r
    WHERE r.ctid = ANY (ARRAY(
      SELECT o.ctid FROM messages.web_request AS o
      WHERE o.asked_at < (SELECT clock_timestamp() - interval '24 hours') LIMIT 10000 FOR UPDATE SKIP LOCKED))
    RETURNING 1
  )
  SELECT (SELECT count(*) FROM sessions) + (SELECT count(*) FROM requests)
$$;
