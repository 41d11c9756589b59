-- Returns what a message that has not ended is called:
--
-- | state | the message |
-- |---|---|
-- | `running` | is locked |
-- | `ready` | is due |
-- | `blocked` | was published with predecessors, and waits for them |
-- | `retrying` | is due later, after an attempt that failed |
-- | `waiting` | is due later: its handler waits for an event |
-- | `delayed` | is due later |
--
-- A message that ended is called by its result.
--
-- Arguments: columns of `messages.message`, and the time.
-- Result: the word; never NULL.
-- Errors: none.
-- Locks: none.
-- Called by: the view `state`, `find_messages`, `search_topic`, `lineage`, `workflow`, `explain_message`, and all that
-- shows a message.
-- Inside: it has no settings of its own, so that it becomes part of its caller's statement; so its operators are
-- qualified, and it uses p_now, which may be a SELECT, once. With lookups of its own instead of functions it would not
-- become part of an expression, and statements over all messages would seem to cost so much that they are compiled.
CREATE OR REPLACE FUNCTION messages.live_state(
  p_id bigint, p_topic text, p_channel text, p_claim_id bigint, p_available_at timestamptz, p_history jsonb,
  p_now timestamptz
)
RETURNS text
LANGUAGE sql
STABLE
AS $$
  SELECT CASE
    WHEN p_claim_id IS NOT NULL THEN 'running'
    WHEN CASE
      WHEN p_channel IS NULL OR p_history IS NULL THEN p_available_at
      ELSE messages.due_at(p_id, p_topic, p_channel, p_available_at)
    END OPERATOR(pg_catalog.<=) p_now THEN 'ready'
    WHEN p_available_at OPERATOR(pg_catalog.=) '9000-01-01 00:00+00' AND messages.is_blocked(p_id) THEN 'blocked'
    WHEN (p_history OPERATOR(pg_catalog.#>>) '{-1,outcome}') OPERATOR(pg_catalog.=) 'failed' THEN 'retrying'
    WHEN (p_history OPERATOR(pg_catalog.#>>) '{-1,outcome}') OPERATOR(pg_catalog.=) 'lock_expired' THEN 'retrying'
    WHEN (p_history OPERATOR(pg_catalog.#>>) '{-1,outcome}') OPERATOR(pg_catalog.=) 'waiting' THEN 'waiting'
    ELSE 'delayed'
  END
$$;
