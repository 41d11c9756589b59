-- Returns what is wrong with a row of `messages.topic`: topic, setting, value, and how to fix it.
--
-- Result: `problem` NULL = it is valid.
-- Errors: none.
-- Locks: none.
-- Called by: the trigger check_topic.
-- Inside: These are the only rules: a CHECK of the table would name a constraint and show the row; this names the
-- setting, its value and the fix.
CREATE OR REPLACE FUNCTION messages.check_policy(p_policy messages.topic, OUT problem text, OUT hint text)
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  IF NOT (
    p_policy.topic ~ '^([A-Za-z0-9][A-Za-z0-9._:-]*|([A-Za-z0-9][A-Za-z0-9._:-]*[.])?[*][*]?)$'
    AND octet_length(p_policy.topic) <= 200
  ) THEN
    problem := format('"%s" is no name of a topic', p_policy.topic);
    hint := 'use 1 to 200 of A-Z a-z 0-9 . _ : - with a letter or digit first, or '
      'end it with .* for one level and .** for any number; * stands for the defaults';
    RETURN;
  END IF;

  -- is_required: the defaults must have it, since every topic may inherit it.
  SELECT
    CASE WHEN k.value IS NULL THEN format('%s of the defaults is not set', k.setting)
      ELSE format('%s of topic %s is %s', k.setting, p_policy.topic, k.value) END,
    CASE WHEN k.value IS NULL THEN 'topics inherit it from here: set a value' ELSE k.hint END
  INTO problem, hint
  FROM (VALUES
    ('max_attempts', p_policy.max_attempts::text, p_policy.max_attempts >= 0, 'use 1 or more, or 0 for no limit',
     false),
    ('lock_duration', p_policy.lock_duration::text, p_policy.lock_duration BETWEEN '100 ms' AND '7 days',
     'use an interval from 100 ms to 7 days', true),
    ('timeout', p_policy.timeout::text, p_policy.timeout BETWEEN '1 ms' AND '30 days',
     'use an interval from 1 ms to 30 days', false),
    ('backoff', p_policy.backoff::text, true, NULL, true),
    ('lock_expired_delay', p_policy.lock_expired_delay::text, p_policy.lock_expired_delay BETWEEN '0' AND '30 days',
     'use an interval from 0 to 30 days', false),
    ('strict_lock', p_policy.strict_lock::text, true, NULL, true),
    ('key_ttl', p_policy.key_ttl::text, p_policy.key_ttl BETWEEN '0' AND '365 days',
     'use an interval up to 365 days, or 0 for none', false),
    ('key_on_retry', p_policy.key_on_retry, p_policy.key_on_retry IN ('supersede', 'keep'), 'use supersede or keep',
     true),
    ('ttl', p_policy.ttl::text, p_policy.ttl BETWEEN '0' AND '3650 days',
     'use an interval up to 3650 days, or 0 for none', false),
    ('max_depth', p_policy.max_depth::text, p_policy.max_depth >= 0, 'use 1 or more, or 0 for no limit', false),
    ('on_full', p_policy.on_full, p_policy.on_full IN ('error', 'drop'), 'use error or drop', true),
    ('max_payload_bytes', p_policy.max_payload_bytes::text, p_policy.max_payload_bytes BETWEEN 1 AND 16777216,
     'use 1 to 16777216', false),
    ('max_concurrency', p_policy.max_concurrency::text, p_policy.max_concurrency >= 0,
     'use 1 or more, or 0 for no limit', false),
    ('worker_concurrency', p_policy.worker_concurrency::text, p_policy.worker_concurrency >= 0,
     'use 1 or more, or 0 for no limit', false),
    ('dequeue_rate', p_policy.dequeue_rate::text,
     p_policy.dequeue_rate = 0 OR p_policy.dequeue_rate BETWEEN 0.000001 AND 1000000,
     'use messages per second from 0.000001 to 1000000, or 0 for no limit', false),
    ('burst', p_policy.burst::text, p_policy.burst BETWEEN 1 AND 1000000, 'use 1 to 1000000', false),
    ('publish_rate', p_policy.publish_rate::text,
     p_policy.publish_rate = 0 OR p_policy.publish_rate BETWEEN 0.000001 AND 1000000,
     'use messages per second from 0.000001 to 1000000, or 0 for no limit', false),
    ('channel_concurrency', p_policy.channel_concurrency::text, p_policy.channel_concurrency >= 0,
     'use 1 or more, or 0 for no limit', false),
    ('channel_min_interval', p_policy.channel_min_interval::text,
     p_policy.channel_min_interval BETWEEN '0' AND '30 days', 'use an interval up to 30 days, or 0 for none', false),
    ('ordered', p_policy.ordered::text, true, NULL, true),
    ('archive_success', p_policy.archive_success, p_policy.archive_success IN ('full', 'no_payload', 'none'),
     'use full, no_payload or none', true),
    ('retention', p_policy.retention::text, p_policy.retention BETWEEN '1 hour' AND '36500 days',
     'use an interval from 1 hour to 36500 days', true),
    ('dead_letter', p_policy.dead_letter::text, NOT (p_policy.dead_letter AND right(p_policy.topic, 4) = '.dlq'),
     'leave it out: what dies in a .dlq topic gets no further copy', true),
    ('dead_letter', p_policy.dead_letter::text, NOT (p_policy.dead_letter AND octet_length(p_policy.topic) > 196),
     'leave it out: with .dlq behind it the name would be longer than 200 bytes', false),
    ('max_redrives', p_policy.max_redrives::text, p_policy.max_redrives >= 0, 'use 1 or more, or 0 for no limit', true),
    ('notify', p_policy.notify, p_policy.notify IN ('auto', 'always', 'off'), 'use auto, always or off', true),
    ('payload_schema', p_policy.payload_schema::text, jsonb_typeof(p_policy.payload_schema) IN ('object', 'boolean'),
     'use a JSON Schema: an object, or true for whatever JSON', false),
    ('accept_publishes', p_policy.accept_publishes::text, true, NULL, true)
  ) AS k (setting, value, good, hint, is_required)
  WHERE NOT k.good OR (k.is_required AND k.value IS NULL AND p_policy.topic = '*')
  LIMIT 1;
END
$$;
