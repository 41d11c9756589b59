-- A topic's policy is checked when it is written, and daemons hear of the change at once.
-- Also keeps the sleeper '*', which stands for the listeners outside: topics with notify = 'always' ring whether a daemon sleeps or not.
-- Locks: the sleeper row '*'.
CREATE OR REPLACE FUNCTION messages.check_topic()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  v_kind   text := NEW.backoff ->> 'kind';
  v_jitter text := NEW.backoff ->> 'jitter';
  v_key    text;
BEGIN
  NEW.updated_at := clock_timestamp();
  IF NEW.backoff IS NULL THEN
    RETURN NEW;
  END IF;

  SELECT k INTO v_key FROM jsonb_object_keys(NEW.backoff) AS k
  WHERE k NOT IN ('kind', 'base', 'step', 'factor', 'cap', 'jitter', 'max_total') LIMIT 1;
  IF v_key IS NOT NULL THEN
    RAISE EXCEPTION 'backoff of topic %: unknown key "%"', NEW.topic, v_key
      USING ERRCODE = '22023', HINT = 'known keys: kind, base, step, factor, cap, jitter, max_total';
  END IF;
  IF v_kind IS NULL OR v_kind NOT IN ('none', 'constant', 'linear', 'exponential') THEN
    RAISE EXCEPTION 'backoff of topic %: kind is %', NEW.topic, coalesce('"' || v_kind || '"', 'missing')
      USING ERRCODE = '22023', HINT = 'use none, constant, linear or exponential';
  END IF;
  IF v_jitter <> 'full' AND NOT (v_jitter ~ '^(0(\.[0-9]+)?|1(\.0+)?)$') THEN
    RAISE EXCEPTION 'backoff of topic %: jitter is "%"', NEW.topic, v_jitter
      USING ERRCODE = '22023', HINT = 'use "full" or a number from 0 to 1';
  END IF;
  BEGIN
    PERFORM messages.backoff(NEW.backoff, 1, 0), (NEW.backoff ->> 'max_total')::interval;
    IF least((NEW.backoff ->> 'base')::interval, (NEW.backoff ->> 'step')::interval, (NEW.backoff ->> 'cap')::interval) < '0'
       OR (NEW.backoff ->> 'factor')::double precision NOT BETWEEN 1 AND 1000 THEN
      RAISE EXCEPTION 'a negative time, or a factor outside 1 to 1000' USING ERRCODE = '22023';
    END IF;
  EXCEPTION WHEN data_exception THEN
    RAISE EXCEPTION 'backoff of topic %: %', NEW.topic, SQLERRM
      USING ERRCODE = '22023', HINT = 'times are intervals like "1s" or "10 minutes"; factor is a number from 1 to 1000';
  END;
  RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION messages.topic_changed()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF EXISTS (SELECT FROM messages.topic AS t WHERE t.notify = 'always') THEN
    INSERT INTO messages.sleeper AS s (worker, topics, armed_until, next_look_at)
    SELECT '*', CASE WHEN NOT bool_or(t.topic = '*') THEN array_agg(t.topic) END, '9000-01-01 00:00+00', '9000-01-01 00:00+00'
    FROM messages.topic AS t
    WHERE t.notify = 'always'
    ON CONFLICT (worker) DO UPDATE SET topics = excluded.topics;
  ELSE
    DELETE FROM messages.sleeper AS s WHERE s.worker = '*';
  END IF;
  PERFORM pg_notify('topic_changed', '');
  RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER check_topic
BEFORE INSERT OR UPDATE ON messages.topic
FOR EACH ROW EXECUTE FUNCTION messages.check_topic();

CREATE OR REPLACE TRIGGER topic_changed
AFTER INSERT OR UPDATE OR DELETE ON messages.topic
FOR EACH STATEMENT EXECUTE FUNCTION messages.topic_changed();
