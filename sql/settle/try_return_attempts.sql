-- One try to unlock messages and return their attempt.
-- Called by: return_attempts; the arguments are described there.
-- A message with a key would again be the one unattempted message of its key. If another one is ready, or a newer one
-- is returned in the same call, it gives way: it is archived as cancelled (key_on_retry supersede), or returns without
-- its key, so that both can stay (keep). If the other one is blocked by predecessors, perhaps by this very message, it
-- is not ready: then too the newest that is returned loses its key. (With its attempt still counted both could stay,
-- too, and at the limit of its attempts it would end without ever having run.) A message that commits in between causes
-- a unique violation, which return_attempts handles.
-- Locks: the rows in the order of their ids, as archive and cancel do, then as lower_low_water. Result: the
-- ids that were unlocked or gave way.
CREATE OR REPLACE FUNCTION messages.try_return_attempts(
  p_ids bigint[], p_claim_ids bigint[], p_delays interval[], p_untils timestamptz[], p_states jsonb[], p_outcome text,
  p_ran boolean[] DEFAULT NULL
)
RETURNS bigint[]
LANGUAGE plpgsql
AS $$
DECLARE
  v_now        timestamptz := messages.now();
  v_superseded bigint[];
  v_kept       bigint[];
  v_ids        bigint[];
  v_claims     bigint[];
  v_topics     text[];
  v_due        timestamptz;
  v_blocks     messages.channel_block[];
  v_places     messages.low_water[];
BEGIN
  SELECT array_agg(u.id) FILTER (WHERE NOT u.stays), array_agg(u.claim_id) FILTER (WHERE NOT u.stays),
         array_agg(u.id) FILTER (WHERE u.stays)
  INTO v_ids, v_claims, v_kept
  FROM (
    SELECT r.id, r.claim_id,
           messages.key_on_retry(r.topic) = 'keep'
             OR (r.newest = 1 AND EXISTS (SELECT FROM messages.blocked_message AS k WHERE k.id = standing.id)) AS stays
    FROM (
      SELECT m.id, m.claim_id, m.topic, m.key, rank() OVER (PARTITION BY m.topic, m.key ORDER BY m.id DESC) AS newest
      FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id)
      JOIN messages.message AS m ON m.id = ANY (ARRAY[e.id]) AND (m.claim_id = e.claim_id) IS TRUE
      WHERE m.key IS NOT NULL AND m.attempts = 1
    ) AS r
    LEFT JOIN LATERAL (
      SELECT s.id
      FROM messages.message AS s
      WHERE s.topic = r.topic AND s.key = r.key AND s.attempts = 0 AND s.claim_id IS NULL
      OFFSET 0
    ) AS standing ON true
    WHERE r.newest > 1 OR standing.id IS NOT NULL
  ) AS u;
  v_superseded := CASE
    WHEN v_ids IS NULL THEN '{}'
    ELSE messages.archive(
      v_ids, v_claims, 'cancelled',
      array_fill('superseded: a newer message with the same key is ready'::text, ARRAY[cardinality(v_ids)]), NULL, NULL)
  END;

  WITH unlocked AS (
    UPDATE messages.message AS m
    SET claim_id = NULL, locked_by = NULL, locked_at = NULL, lock_expires_at = NULL,
        attempts = m.attempts - 1,
        -- Without the type it would be text, and looked at again: a key that came before the domain was tightened would
        -- keep it from coming back.
        key = CASE
          WHEN m.id NOT IN (SELECT k.id FROM unnest(v_kept) AS k (id)) THEN m.key
          ELSE NULL::messages.key_name
        END,
        runs = m.runs - (p_outcome IS NULL AND m.prefetched IS NOT TRUE AND e.ran IS NOT TRUE)::integer,
        prefetched = NULL,
        -- In an ordered channel it keeps its place, and the channel waits for it.
        available_at = CASE WHEN p_outcome IS NULL OR is_first.ordered THEN m.available_at ELSE is_first.due END,
        state = CASE WHEN e.state IS NULL THEN m.state ELSE nullif(e.state::messages.given_json, 'null') END,
        history = CASE
          WHEN p_outcome IS NULL THEN m.history
          ELSE messages.append_attempt(
            m.history, m.attempts, m.locked_by, m.locked_at, v_now, p_outcome, NULL, m.runs)
        END
    FROM (
      SELECT e.*
      FROM unnest(p_ids, p_claim_ids, p_delays, p_untils, p_states, p_ran) AS e (id, claim_id, delay, until, state, ran)
      ORDER BY e.id
    ) AS e
    CROSS JOIN LATERAL (
      SELECT CASE
               WHEN e.until IS NOT NULL THEN greatest('1970-01-01 00:00+00', least(e.until, '9000-01-01 00:00+00'))
               ELSE v_now + greatest('0', least(coalesce(e.delay, '0'), '1000 years'))
             END AS due,
             p_outcome IS NOT NULL AND messages.is_in_ordered_channel(e.id) AS ordered
    ) AS is_first
    WHERE m.id = ANY (ARRAY[e.id]) AND (m.claim_id = e.claim_id) IS TRUE
      AND (m.lock_expires_at > v_now OR NOT messages.has_strict_lock(m.topic))
    RETURNING m.id, m.topic, m.channel, m.priority, m.available_at, is_first.due, is_first.ordered
  )
  SELECT coalesce(array_agg(u.id), '{}'), array_agg(DISTINCT u.topic),
         min(CASE WHEN u.ordered THEN u.due ELSE u.available_at END),
         array_agg((u.topic, u.channel, u.id, u.due)::messages.channel_block) FILTER (WHERE u.ordered),
         array_agg(
           (u.topic, CASE WHEN u.channel IS NULL THEN u.priority ELSE -1 END, u.available_at)::messages.low_water)
  INTO v_ids, v_topics, v_due, v_blocks, v_places
  FROM unlocked AS u;

  IF v_blocks IS NOT NULL THEN
    PERFORM messages.hold_ordered_channels(v_blocks);
  END IF;
  IF v_topics IS NOT NULL THEN
    PERFORM messages.lower_low_water(v_places);
    PERFORM messages.notify_topics(v_topics, v_due);
  END IF;
  RETURN v_ids || v_superseded;
END
$$;

-- Returns whether a message is in an ordered channel, whose later messages wait for it.
-- Called by: return_attempts. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.is_in_ordered_channel(p_id bigint)
RETURNS boolean
LANGUAGE sql
STABLE
AS $$
  SELECT m.channel IS NOT NULL AND coalesce(t.ordered, d.ordered)
  FROM messages.message AS m
  JOIN messages.inherited_policy AS d ON d.topic = messages.inherits_from(m.topic)
  LEFT JOIN messages.topic AS t ON t.topic = m.topic
  WHERE m.id = p_id
$$;
