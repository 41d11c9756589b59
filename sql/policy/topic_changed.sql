-- Check a row of messages.topic when it is written, and NOTIFY topic_changed. The policy takes effect at once, since
-- every call reads it. The row '*' of the defaults cannot be deleted: without it no policy could be read, and no
-- message settled. It also records which topics publishes must check. If a rate was raised, what the old rate charged
-- is reduced.
-- Locks: as begin_policy_change, since the bits are made from all rows; as clamp_rates.
CREATE OR REPLACE FUNCTION messages.check_topic()
RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
  v_problem text;
  v_hint    text;
BEGIN
  IF TG_OP <> 'INSERT' AND OLD.topic = '*' AND (TG_OP = 'DELETE' OR NEW.topic <> '*') THEN
    RAISE EXCEPTION 'the row ''*'' of messages.topic holds the defaults and cannot be taken away'
      USING ERRCODE = '23503', HINT = 'update its columns';
  END IF;
  IF TG_OP = 'DELETE' THEN
    RETURN OLD;
  END IF;

  SELECT c.problem, c.hint INTO v_problem, v_hint FROM messages.check_policy(NEW) AS c;
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION '%', v_problem USING ERRCODE = '22023', HINT = v_hint;
  END IF;
  SELECT c.problem, c.hint INTO v_problem, v_hint FROM messages.check_backoff(NEW.backoff) AS c;
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION 'backoff of topic %: %', NEW.topic, v_problem USING ERRCODE = '22023', HINT = v_hint;
  END IF;
  SELECT c.problem, c.hint INTO v_problem, v_hint FROM messages.check_breaker(NEW.breaker) AS c;
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION 'breaker of topic %: %', NEW.topic, v_problem USING ERRCODE = '22023', HINT = v_hint;
  END IF;
  NEW.updated_at := clock_timestamp();
  RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION messages.topic_changed()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  PERFORM messages.begin_policy_change();
  PERFORM messages.inherit_policies();
  PERFORM messages.set_policy_bits();
  PERFORM messages.clamp_rates();
  PERFORM messages.notify('topic_changed', ARRAY['']);
  RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER check_topic
BEFORE INSERT OR UPDATE OR DELETE ON messages.topic
FOR EACH ROW EXECUTE FUNCTION messages.check_topic();

CREATE OR REPLACE TRIGGER topic_changed
AFTER INSERT OR UPDATE OR DELETE ON messages.topic
FOR EACH STATEMENT EXECUTE FUNCTION messages.topic_changed();
