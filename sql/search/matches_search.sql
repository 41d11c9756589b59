-- Returns whether a message matches a search, except for the time, which the caller checks.
-- Called by: matches_live, search_dead, search_ended; written so that the planner inlines it. Locks:
-- nothing.
CREATE OR REPLACE FUNCTION messages.matches_search(
  p_search messages.search, p_topic text, p_state text, p_channel text, p_key text, p_error text, p_fingerprint text,
  p_payload jsonb,
  p_headers jsonb, p_worker text, p_attempts integer, p_batch_id bigint
)
RETURNS boolean
LANGUAGE sql
STABLE
AS $$
  SELECT ((p_search).topic IS NULL OR p_topic = (p_search).topic)
     AND ((p_search).may IS NULL OR p_topic = ANY ((p_search).may) OR p_topic ~ ANY ((p_search).may_match))
     AND ((p_search).states IS NULL OR p_state = ANY ((p_search).states))
     AND ((p_search).channel IS NULL OR p_channel = (p_search).channel)
     AND ((p_search).key IS NULL OR p_key = (p_search).key)
     AND ((p_search).fingerprint IS NULL OR p_fingerprint = (p_search).fingerprint)
     AND ((p_search).error IS NULL OR strpos(lower(p_error COLLATE "C"), lower((p_search).error COLLATE "C")) > 0)
     AND ((p_search).headers IS NULL OR p_headers @> (p_search).headers)
     AND ((p_search).worker IS NULL OR p_worker = (p_search).worker OR starts_with(p_worker, (p_search).worker || '/'))
     AND ((p_search).attempts IS NULL OR p_attempts >= (p_search).attempts)
     AND ((p_search).batch_id IS NULL OR p_batch_id = (p_search).batch_id)
     AND ((p_search).path IS NULL OR jsonb_path_exists(p_payload, (p_search).path, (p_search).vars, true))
$$;
