-- Adds a worker to the registry.
--
-- Errors: 23502 if an argument is NULL. 22023 for an invalid name of a worker (`messages.check_worker_name`).
-- Locks: the worker's own row; the call waits for any transaction that holds it: a worker that has locks to extend on
-- the same connection sets a `statement_timeout`.
-- Repeat: replaces the entry.
-- Called by: daemons at start, and when touch_worker says that the registry does not know them.
CREATE OR REPLACE FUNCTION messages.register_worker(
  p_name text, p_host text, p_pid integer, p_version text, p_topics text[], p_concurrency integer
)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  PERFORM messages.check_worker_name(p_name);
  INSERT INTO messages.worker AS w (name, host, pid, version, topics, concurrency)
  VALUES (p_name, p_host, p_pid, p_version, p_topics, p_concurrency)
  ON CONFLICT (name) DO UPDATE
  SET host = excluded.host, pid = excluded.pid, version = excluded.version, topics = excluded.topics,
      concurrency = excluded.concurrency, seen_at = clock_timestamp(), stopping = false;
END
$$;
