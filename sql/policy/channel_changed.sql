-- Check a row of messages.channel when it is written, and NOTIFY topic_changed. The row takes effect at once, since
-- every call reads it.
-- Locks: nothing; PostgreSQL takes its notify lock at commit.
CREATE OR REPLACE FUNCTION messages.check_channel()
RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
  v_problem text;
  v_hint    text;
BEGIN
  SELECT k.problem, k.hint INTO v_problem, v_hint
  FROM (VALUES
    (NEW.topic ~ '^[A-Za-z0-9][A-Za-z0-9._:-]*$' AND octet_length(NEW.topic) <= 200,
     format('"%s" is no name of a topic that has channels', NEW.topic),
     'use 1 to 200 of A-Z a-z 0-9 . _ : - with a letter or digit first; for all topics set the policy of topic *'),
    (messages.is_printable(NEW.channel) AND length(NEW.channel) BETWEEN 1 AND 200,
     format('"%s" is no name of a channel', NEW.channel), 'use 1 to 200 printable characters'),
    (NEW.concurrency >= 0,
     format('concurrency of channel %s of topic %s is %s', NEW.channel, NEW.topic, NEW.concurrency),
     'use 1 or more, or 0 for no limit'),
    (NEW.min_interval BETWEEN '0' AND '30 days',
     format('min_interval of channel %s of topic %s is %s', NEW.channel, NEW.topic, NEW.min_interval),
     'use an interval up to 30 days, or 0 for none')
  ) AS k (good, problem, hint)
  WHERE NOT k.good
  LIMIT 1;
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION '%', v_problem USING ERRCODE = '22023', HINT = v_hint;
  END IF;
  RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION messages.channel_changed()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  PERFORM messages.notify('topic_changed', ARRAY['']);
  RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER check_channel
BEFORE INSERT OR UPDATE ON messages.channel
FOR EACH ROW EXECUTE FUNCTION messages.check_channel();

CREATE OR REPLACE TRIGGER channel_changed
AFTER INSERT OR UPDATE OR DELETE ON messages.channel
FOR EACH STATEMENT EXECUTE FUNCTION messages.channel_changed();
