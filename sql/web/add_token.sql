-- Adds a token of the web server, given by the SHA-256 of a secret that only its holder has; `pgrouse token add`
-- generates such a secret.
--
-- Arguments: `p_roles`: any of `viewer`, `publisher`, `worker` and `operator`. `p_topics`: names,
-- [patterns](#patterns-of-topics), or beginnings that end with `*`; `*` = every topic. `p_expires`: the time after
-- which the token is invalid; NULL: never.
-- Errors: 23505 for a name that already exists, revoked or not; 22023 for invalid arguments.
-- Locks: the new row.
-- Called by: operators (`pgrouse token add`).
CREATE OR REPLACE FUNCTION messages.add_token(
  p_name    text,
  p_digest  bytea,
  p_roles   text[],
  p_topics  text[]   DEFAULT '{*}',
  p_expires interval DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_problem text := CASE
    WHEN p_name IS NULL OR p_name !~ '^[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}$'
      THEN 'the name of a token has 1 to 100 of A-Z a-z 0-9 . _ : @ -, a letter or digit first'
    WHEN octet_length(p_digest) IS DISTINCT FROM 32 THEN 'the digest of a token has 32 bytes'
    WHEN p_expires NOT BETWEEN '1 second' AND '36500 days' THEN 'a token expires after 1 second to 36500 days'
    ELSE messages.access_problem(p_roles, p_topics)
  END;
BEGIN
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION '%', v_problem USING ERRCODE = '22023';
  END IF;
  INSERT INTO messages.token AS t (name, digest, roles, topics, expires_at, created_by)
  VALUES (p_name, p_digest, p_roles, p_topics, clock_timestamp() + p_expires, messages.actor());
  PERFORM messages.audit_action(
    'add_token', NULL, p_name, jsonb_build_object('roles', p_roles, 'topics', p_topics, 'expires_in', p_expires));
EXCEPTION WHEN unique_violation THEN
  RAISE EXCEPTION 'there is a token "%" already', p_name
    USING ERRCODE = '23505',
      HINT = 'choose another name; one that was revoked keeps its name, so that the audit stays readable';
END
$$;
