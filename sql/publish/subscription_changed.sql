-- Refuse subscriptions that form a cycle, except for a topic that subscribes to itself: a message would be copied
-- forever. It also sets the bits of topics with subscribers, so that publishing checks them.
-- Locks: as begin_policy_change: two changes that form a cycle together must see each other, and one of policies sets
-- bits, too.
CREATE OR REPLACE FUNCTION messages.subscription_changed()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_circle text;
  v_dead   text;
BEGIN
  PERFORM messages.begin_policy_change();
  SELECT s.topic || ' to ' || s.subscriber INTO v_dead
  FROM messages.subscription AS s WHERE s.subscriber LIKE '%.dlq' OR s.topic LIKE '%.dlq' LIMIT 1;
  IF v_dead IS NOT NULL THEN
    RAISE EXCEPTION 'subscription of %: names that end with .dlq are reserved for dead letters', v_dead
      USING ERRCODE = 'PGR05', HINT = 'subscribe a topic with another name';
  END IF;

  -- First, since subscribers looks at patterns only once it is raised.
  PERFORM messages.set_policy_bits();
  WITH RECURSIVE reached AS (
    -- Each topic of a circle is a subscriber, whatever pattern it is subscribed to.
    SELECT w.topic AS start, s.subscriber AS topic
    FROM (SELECT DISTINCT u.subscriber::text AS topic FROM messages.subscription AS u) AS w
    JOIN LATERAL messages.subscribers(w.topic) AS s ON s.subscriber <> w.topic
    UNION
    SELECT r.start, s.subscriber
    FROM reached AS r
    JOIN LATERAL messages.subscribers(r.topic) AS s ON s.subscriber <> r.topic
  )
  SELECT string_agg(r.start, ', ' ORDER BY r.start) INTO v_circle FROM reached AS r WHERE r.topic = r.start;
  IF v_circle IS NOT NULL THEN
    RAISE EXCEPTION 'subscriptions form a circle of the topics %', v_circle
      USING ERRCODE = '22023', HINT = 'what is published there would go round without end; leave one of them out';
  END IF;

  RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER subscription_changed
AFTER INSERT OR UPDATE OR DELETE ON messages.subscription
FOR EACH STATEMENT EXECUTE FUNCTION messages.subscription_changed();
