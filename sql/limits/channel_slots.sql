-- Returns how many messages a claim may take from each of the given channels now.
-- Called by: pick_shares, only where channels have limits. p_channels: in their order, one entry for each
-- priority; p_most: the maximum number of each.
-- Locks: as lock_channels. Running messages and holds are read after the lock is taken, in a separate statement, which
-- sees all that earlier holders of the lock claimed. What is free at p_now is free now, however long the lock was
-- waited for.
-- Result: slots, one for each of p_channels (0 = none); held: due messages are held back; until: when to look again,
-- NULL = not known.
CREATE OR REPLACE FUNCTION messages.channel_slots(
  p_policy messages.policy, p_channels text[], p_now timestamptz, p_most integer, OUT slots integer[],
  OUT held boolean, OUT until timestamptz
)
LANGUAGE plpgsql
AS $$
DECLARE
  v_special boolean := EXISTS (SELECT FROM messages.channel AS o WHERE o.topic = p_policy.topic);
  v_locked  messages.rate[];
BEGIN
  PERFORM messages.check_isolation(p_policy.topic);
  v_locked := messages.clamp_channel_rates(p_policy, messages.lock_channels(p_policy.topic, p_channels));

  SELECT array_agg(greatest(0, look.room) ORDER BY c.place), bool_or(look.room <= 0),
         nullif(
           min(
             CASE WHEN look.room > 0 THEN 'infinity' WHEN c.locked IS NOT NULL THEN coalesce(look.until, 'infinity')
               ELSE p_now END
           ), 'infinity')
  INTO slots, held, until
  FROM (
    SELECT u.*, coalesce(lag(u.channel) OVER (ORDER BY u.place) = u.channel, false) AS is_second
    FROM unnest(p_channels, v_locked) WITH ORDINALITY AS u (
      channel, kind, topic, locked, free_at, blocked_until, blocked_by, place)
  ) AS c
  LEFT JOIN LATERAL (
    SELECT o.* FROM messages.channel AS o WHERE v_special AND o.topic = p_policy.topic AND o.channel = c.channel LIMIT 1
  ) AS o ON true
  CROSS JOIN LATERAL (
    SELECT
      CASE WHEN p_policy.ordered THEN 1
        ELSE nullif(coalesce(o.concurrency, p_policy.channel_concurrency), 0) END AS concurrency,
      nullif(coalesce(o.min_interval, p_policy.channel_min_interval), '0') AS min_interval,
      greatest(
        c.free_at,
        CASE
          -- EXISTS is not used: PostgreSQL 18 would read the whole table once to know all that could be asked for,
          -- whatever its settings say.
          WHEN c.blocked_until > p_now AND (
            SELECT f.claim_id IS NULL FROM messages.message AS f WHERE f.id = c.blocked_by) THEN c.blocked_until
        END,
        CASE WHEN messages.is_paused(o.paused_at, o.resume_at, p_now)
          THEN coalesce(o.resume_at, 'infinity') END) AS until
    -- Without OFFSET 0, this and room would be computed once for each use of them.
    OFFSET 0
  ) AS own
  CROSS JOIN LATERAL (
    SELECT
      CASE WHEN own.until > p_now THEN own.until END AS until,
      CASE
        WHEN c.locked IS NULL OR own.until > p_now OR (p_policy.ordered AND c.is_second) THEN 0
        ELSE least(
          p_most,
          CASE WHEN own.min_interval IS NOT NULL THEN 1 END,
          CASE WHEN own.concurrency IS NOT NULL THEN own.concurrency - (
            SELECT count(*) FROM (
              SELECT FROM messages.message AS m
              WHERE m.topic = p_policy.topic AND m.channel = c.channel AND m.claim_id IS NOT NULL
              LIMIT own.concurrency) AS running)::integer
          END)
      END AS room
    OFFSET 0
  ) AS look;
END
$$;

-- Lock the channels that a claim is about to count.
-- Called by: channel_slots. Locks: the row of each channel in messages.rate until the transaction ends, skipping those
-- that another claim has locked; it waits for no lock. (Advisory locks would work, but run out with a few thousand
-- channels.) Result: the rows, one for each of p_channels; NULL = another claim has it, or it could not be made now.
CREATE OR REPLACE FUNCTION messages.lock_channels(p_topic text, p_channels text[])
RETURNS messages.rate[]
LANGUAGE plpgsql
AS $$
DECLARE
  v_locked  messages.rate[];
  v_missing text[];
BEGIN
  LOOP
    SELECT array_agg(l.locked ORDER BY c.place), array_agg(c.channel) FILTER (WHERE l.locked IS NULL)
    INTO v_locked, v_missing
    FROM unnest(p_channels) WITH ORDINALITY AS c (channel, place)
    LEFT JOIN LATERAL (
      SELECT r AS locked FROM messages.rate AS r
      WHERE r.kind = 'channel' AND r.topic = p_topic AND r.channel = c.channel
      FOR UPDATE SKIP LOCKED
    ) AS l ON true;
    EXIT WHEN v_missing IS NULL OR NOT messages.create_channel_rates(p_topic, v_missing);
  END LOOP;
  RETURN v_locked;
END
$$;

-- Create the rows of messages.rate that claims lock while they count the running messages of a channel.
-- Called by: lock_channels, for channels whose row it did not get. Locks: the topic's row of messages.mutex until the
-- transaction ends, only if free at once: two claims that insert the same rows would wait for each other. A claim that
-- does not get the lock leaves the channels without a row to a later claim.
-- Result: whether it made any.
CREATE OR REPLACE FUNCTION messages.create_channel_rates(p_topic text, p_channels text[])
RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
  v_new text[] := ARRAY(
    SELECT DISTINCT c.channel
    FROM unnest(p_channels) AS c (channel)
    -- No NOT EXISTS: its plan may read all rows of the topic for each channel.
    LEFT JOIN LATERAL (
      SELECT true AS is_there FROM messages.rate AS r
      WHERE r.kind = 'channel' AND r.topic = p_topic AND r.channel = c.channel LIMIT 1
    ) AS r ON true
    WHERE r.is_there IS NULL);
BEGIN
  IF v_new = '{}' OR NOT messages.lock_mutex('channels', p_topic) THEN
    RETURN false;
  END IF;
  INSERT INTO messages.rate (kind, topic, channel) SELECT 'channel', p_topic, c.channel
  FROM unnest(v_new) AS c (channel)
  ON CONFLICT DO NOTHING;
  RETURN FOUND;
END
$$;
