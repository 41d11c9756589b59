-- Messages that come after others, and steps of a message that are done once.

-- It gets two more arguments: one with the old list beside the new one would make every call ambiguous. Whoever was granted the old one has the new
-- one, whose body comes with its file: to replace a function leaves its grants as they are.
DO $$
DECLARE
  v_granted aclitem[];
  v_grant   record;
  v_what    text;
BEGIN
  SELECT p.proacl INTO v_granted FROM pg_proc AS p
  WHERE p.oid = to_regprocedure(
    'messages.publish(text, jsonb, text, text, bytea, jsonb, text, integer, interval, timestamptz, interval, integer)');
  DROP FUNCTION IF EXISTS messages.publish(
    text, jsonb, text, text, bytea, jsonb, text, integer, interval, timestamptz, interval, integer);
  CREATE FUNCTION messages.publish(
    p_topic text, p_payload jsonb DEFAULT NULL, p_key text DEFAULT NULL, p_on_conflict text DEFAULT 'error', p_body bytea DEFAULT NULL,
    p_headers jsonb DEFAULT NULL, p_channel text DEFAULT NULL, p_priority integer DEFAULT 5, p_delay interval DEFAULT NULL,
    p_available_at timestamptz DEFAULT NULL, p_ttl interval DEFAULT NULL, p_max_attempts integer DEFAULT NULL, p_after bigint[] DEFAULT NULL,
    p_after_failed text DEFAULT 'hold', OUT id bigint, OUT what text)
  LANGUAGE sql
  RETURN ROW(NULL::bigint, NULL::text);
  FOR v_grant IN
    SELECT a.grantee::regrole AS grantee, CASE WHEN bool_or(a.is_grantable) THEN ' WITH GRANT OPTION' ELSE '' END AS option
    FROM aclexplode(v_granted) AS a
    WHERE a.grantee <> 0
    GROUP BY 1
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION messages.publish TO %s%s', v_grant.grantee, v_grant.option);
  END LOOP;
EXCEPTION WHEN dependent_objects_still_exist THEN
  GET STACKED DIAGNOSTICS v_what = PG_EXCEPTION_DETAIL;
  RAISE EXCEPTION 'messages.publish gets two more arguments, and what is bound to the old ones is in the way: %', v_what
    USING ERRCODE = '2BP01', HINT = 'drop it, run pgrouse migrate, and make it again: docs/operating/upgrade.md, "What is bound to a function"';
END
$$;

-- What is known of a message that waits for others, beside its row of messages.message, whose available_at is the end of the domain until then:
-- no claim ever reads over it. What its publisher wanted of times counts from its release.
CREATE TABLE messages.parked (
  id           bigint      PRIMARY KEY,
  after_failed text        NOT NULL CHECK (after_failed IN ('hold', 'cancel', 'run')),
  available_at messages.moment,
  delay        interval,
  ttl          interval,
  -- How many it waited for in the beginning.
  width        integer     NOT NULL,
  -- When the tick looks whether an end was missed, and below which transaction somebody may have ended one of them without seeing this row.
  look_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  seen_below   xid8
);
CREATE INDEX parked_look_at ON messages.parked (look_at);

-- What comes after what. died: how the predecessor ended, if that was not well and the successor goes on waiting.
CREATE TABLE messages.edge (
  successor_id   bigint NOT NULL,
  predecessor_id bigint NOT NULL,
  died           text   CHECK (died IN ('rejected', 'failed', 'lock_expired', 'expired', 'cancelled')),
  PRIMARY KEY (successor_id, predecessor_id)
);
CREATE INDEX edge_predecessor ON messages.edge (predecessor_id, successor_id);

-- Ends that the successors have not heard of yet. result: as in the archive, or redriven: its edges go to the message that it became.
CREATE TABLE messages.ending (
  id     bigint PRIMARY KEY,
  result text   NOT NULL
    CHECK (result IN ('success', 'rejected', 'failed', 'lock_expired', 'expired', 'cancelled', 'redriven'))
);

-- What the steps of a handler returned: a later attempt gets it instead of doing the step again.
CREATE TABLE messages.step (
  message_id bigint      NOT NULL,
  name       messages.key_name NOT NULL,
  result     jsonb       NOT NULL,
  attempt    integer     NOT NULL,
  kept_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (message_id, name)
);
-- How far messages.prune_steps has come: it goes round.
CREATE SEQUENCE messages.step_place MINVALUE 0;
