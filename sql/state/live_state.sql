-- Returns what a message that has not ended is called: `running`: locked; `ready`: it may be claimed; `retrying`: due
-- later, after an attempt that failed; `waiting`: its handler waits for an event; `delayed`: due later. A message that
-- ended is called by its result.
--
-- Arguments: columns of `messages.message`, and the time.
-- Result: the word; never NULL.
-- Errors: none.
-- Locks: none.
-- Called by: the view `state`, `find_messages`, `search_topic`, `lineage`, `workflow`, `explain_message`, and all that
-- shows a message.
-- Inside: it has no settings of its own, so that it becomes part of its caller's statement; so its operators are
-- qualified.
CREATE OR REPLACE FUNCTION messages.live_state(
  p_claim_id bigint, p_available_at timestamptz, p_history jsonb, p_now timestamptz
)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT CASE
    WHEN p_claim_id IS NOT NULL THEN 'running'
    WHEN p_available_at OPERATOR(pg_catalog.<=) p_now THEN 'ready'
    WHEN (p_history OPERATOR(pg_catalog.#>>) '{-1,outcome}') OPERATOR(pg_catalog.=) 'failed' THEN 'retrying'
    WHEN (p_history OPERATOR(pg_catalog.#>>) '{-1,outcome}') OPERATOR(pg_catalog.=) 'lock_expired' THEN 'retrying'
    WHEN (p_history OPERATOR(pg_catalog.#>>) '{-1,outcome}') OPERATOR(pg_catalog.=) 'waiting' THEN 'waiting'
    ELSE 'delayed'
  END
$$;
