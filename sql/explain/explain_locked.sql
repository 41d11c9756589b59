-- Finds the session that has locked a ready message, its topic or its channel for more than five seconds: claims skip
-- it, or cannot count what runs.
-- Called by: explain_waiting. Locks: nothing. Result: as explain.
CREATE OR REPLACE FUNCTION messages.explain_locked(p_message messages.message, p_now timestamptz)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE sql
STABLE
AS $$
  SELECT 'locked',
         format(
           '%s has locked %s, for %s; end it by: %s', h.who, h.what, messages.format_interval(p_now - h.since), h.fix),
         jsonb_build_object('kind', h.kind, 'who', h.who, 'pid', h.pid, 'since', h.since, 'fix', h.fix)
  FROM messages.lock_holders(p_message.topic, p_message.channel, p_message.id) AS h
  WHERE h.topic = p_message.topic AND h.kind IN ('message', 'channel', 'channels', 'topic')
    AND h.since < p_now - interval '5 seconds'
    AND (h.kind <> 'channels' OR p_message.channel IS NOT NULL)
  ORDER BY h.kind = 'message' DESC, h.since
$$;
