-- Record that a claim skipped ready messages because of a limit, and when to look again.
-- Called by: claim, pick_with_channel. Locks: nothing. p_part: 'topic' = all of it, 'channels' = those of its messages that have a channel.
-- p_until: NULL = when something is settled or a policy changes, at an unknown time.
-- A function that returns rows can return nothing else, so this is a setting of the transaction. next_due reads it, and so must the caller
-- of claim: SELECT current_setting('messages.held_back', true) in the same transaction; NULL or '' = nothing was held back.
CREATE OR REPLACE FUNCTION messages.record_held_back(p_topic text, p_part text, p_until timestamptz)
RETURNS void
LANGUAGE sql
AS $$
  SELECT set_config(
    'messages.held_back',
    (coalesce(nullif(current_setting('messages.held_back', true), ''), '{}')::jsonb
      || jsonb_build_object(p_part || ' ' || p_topic, nullif(p_until, 'infinity')))::text,
    true)
$$;
