-- Returns whether a message that has not ended matches a search, with the time of its publish.
-- Called by: search_running, search_topic; written so that the planner inlines it. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.matches_live(
  p_search messages.search, p_message messages.message, p_now timestamptz
)
RETURNS boolean
LANGUAGE sql
STABLE
AS $$
  -- The time comes first: it costs less than what matches_search reads.
  SELECT p_message.created_at >= coalesce((p_search).since, '-infinity')
     AND p_message.created_at < coalesce((p_search).until, 'infinity')
     AND messages.matches_search(
           p_search, p_message.topic,
           messages.live_state(
             p_message.id, p_message.topic, p_message.channel, p_message.claim_id, p_message.available_at,
             p_message.history, p_now),
           p_message.channel, p_message.key, p_message.history -> -1 ->> 'error',
           CASE WHEN (p_search).fingerprint IS NOT NULL
             THEN messages.error_fingerprint(p_message.history -> -1 ->> 'error') END,
           p_message.payload, p_message.headers, p_message.locked_by, p_message.attempts, p_message.batch_id)
$$;
