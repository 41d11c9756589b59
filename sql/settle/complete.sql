-- Settles messages that succeeded: they are archived as `success`. The topic's `archive_success` sets what the archive
-- keeps of a success: `full`, `no_payload` (payload and body are left out), `none` (no row at all).
--
-- Arguments: `p_outputs`: for each message, the value that its handler returned, kept as `output`.
-- Result: the ids whose lock was lost; nothing was changed for them.
-- Errors: none.
-- Locks: the rows, until the transaction ends; it waits for a transaction that settles, extends or cancels the same
-- rows.
-- Called by: workers.
CREATE OR REPLACE FUNCTION messages.complete(p_ids bigint[], p_claim_ids bigint[], p_outputs jsonb[] DEFAULT NULL)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  RETURN messages.settle(p_ids, p_claim_ids, 'success', NULL, p_outputs);
END
$$;
