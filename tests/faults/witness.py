"""The records of a witness inside the database.

Each change of a lock and each end of a message is written in the transaction that did it.

It is independent of the records of the queue. A crash that takes back a change takes back its record, too.
"""

from __future__ import annotations

from typing import LiteralString

TABLES: LiteralString = """
CREATE TABLE witness (
  nth bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL DEFAULT clock_timestamp(),
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  what text NOT NULL, id bigint NOT NULL, topic text NOT NULL, channel text,
  -- of the row before
  claim_id bigint, attempts integer, lock_expires_at timestamptz,
  -- of the row after
  new_claim_id bigint, new_attempts integer, locked_at timestamptz, max_attempts integer,
  -- how the attempt or the message ended
  ended text, error text
);
CREATE INDEX ON witness (id);
CREATE TABLE kept (id bigint NOT NULL, step text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE effect (id bigint NOT NULL, claim_id bigint NOT NULL);
CREATE INDEX ON effect (id)
"""

OF_LIVE: LiteralString = """
CREATE FUNCTION witness_live() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  INSERT INTO witness (
    what, id, topic, channel, claim_id, attempts, lock_expires_at, new_claim_id, new_attempts, locked_at, max_attempts,
    ended, error)
  SELECT
    CASE
      WHEN TG_OP = 'INSERT' THEN 'published'
      WHEN TG_OP = 'DELETE' THEN 'gone'
      WHEN OLD.claim_id IS NULL AND NEW.claim_id IS NOT NULL THEN 'claimed'
      WHEN OLD.claim_id IS NOT NULL AND NEW.claim_id IS NULL THEN 'freed'
      WHEN OLD.claim_id <> NEW.claim_id THEN 'taken'
      WHEN OLD.attempts <> NEW.attempts THEN 'recounted'
      ELSE 'shortened'
    END,
    coalesce(NEW.id, OLD.id), coalesce(NEW.topic, OLD.topic), coalesce(NEW.channel, OLD.channel),
    OLD.claim_id, OLD.attempts, OLD.lock_expires_at, NEW.claim_id, NEW.attempts, NEW.locked_at,
    coalesce(NEW.max_attempts, OLD.max_attempts),
    CASE WHEN jsonb_array_length(coalesce(NEW.history, '[]')) > 0 AND NEW.history IS DISTINCT FROM OLD.history
      THEN NEW.history -> -1 ->> 'outcome' END,
    left(NEW.history -> -1 ->> 'error', 200);
  RETURN NULL;
END
$$;
CREATE TRIGGER witness AFTER INSERT OR DELETE ON messages.message FOR EACH ROW EXECUTE FUNCTION witness_live();
CREATE TRIGGER witness_changes AFTER UPDATE ON messages.message FOR EACH ROW
WHEN (
  OLD.claim_id IS DISTINCT FROM NEW.claim_id OR OLD.attempts <> NEW.attempts
    OR NEW.lock_expires_at < OLD.lock_expires_at)
EXECUTE FUNCTION witness_live()
"""

OF_ARCHIVE: LiteralString = """
CREATE FUNCTION witness_archive() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = public, pg_temp AS $$
BEGIN
  INSERT INTO witness (what, id, topic, channel, claim_id, attempts, max_attempts, ended, error)
  VALUES (
    'archived', NEW.id, NEW.topic, NEW.channel, NEW.claim_id, NEW.attempts, NEW.max_attempts, NEW.result,
    left(NEW.error, 200));
  RETURN NULL;
END
$$;
CREATE TRIGGER witness AFTER INSERT ON messages.message_archive FOR EACH ROW EXECUTE FUNCTION witness_archive()
"""
OF_STEPS: LiteralString = """
CREATE FUNCTION witness_step() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  INSERT INTO kept (id, step) VALUES (NEW.message_id, NEW.name);
  RETURN NULL;
END
$$;
CREATE TRIGGER witness AFTER INSERT ON messages.step FOR EACH ROW EXECUTE FUNCTION witness_step()
"""
STATEMENTS = (TABLES, OF_LIVE, OF_ARCHIVE, OF_STEPS)
