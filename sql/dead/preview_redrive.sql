-- Returns the outcomes that `messages.redrive` would have for these messages at this moment, without redriving them.
--
-- Arguments: `p_topic`: the topic to which they would go, instead of their own. `p_force`: ignore `max_redrives`.
-- `p_new_payload`: they would get another payload, so the size of their own does not count.
-- Result: one row per id. `archived_at` NULL: the archive row is gone, and a copy represents the message. `message_id`:
-- the message because of which it stays dead. `place`: its position among those that are put back.
-- Errors: none.
-- Locks: none.
-- Cost: it reads all contents that take more than a few kB.
-- Called by: redrive_rows, `pgrouse redrive --dry-run`.
-- Inside: A newer message with the same key is no error: with key_on_retry = 'supersede' the old message gives way and
-- stays dead, with 'keep' it comes back without its key. Of several with one key the newest gets it. If the pending
-- message is blocked, perhaps by this very message, the newest comes back without its key in any case, and so does one
-- whose key is not printable.
CREATE OR REPLACE FUNCTION messages.preview_redrive(
  p_ids bigint[], p_topic text DEFAULT NULL, p_force boolean DEFAULT false, p_new_payload boolean DEFAULT false
)
RETURNS TABLE (archived_id bigint, archived_at timestamptz, message_id bigint, outcome text, place bigint)
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT j.id, j.archived_at,
         CASE j.outcome WHEN 'redriven_before' THEN j.before WHEN 'superseded' THEN j.standing END, j.outcome, j.place
  FROM (
    SELECT r.*,
           count(*) FILTER (WHERE r.outcome IN ('redriven', 'keyless')) OVER (ORDER BY r.died_at, r.id) - 1 AS place
    FROM (
      SELECT k.*, standing.id AS standing,
             CASE
               WHEN k.stop IS NOT NULL THEN k.stop
               -- It came before keys like that were refused.
               WHEN NOT messages.is_printable(k.key) THEN 'keyless'
               WHEN k.key IS NULL OR (standing.id IS NULL AND k.newest = 1) THEN 'redriven'
               WHEN k.key_on_retry = 'keep'
                 OR (
                   k.newest = 1 AND (SELECT true FROM messages.blocked_message AS w WHERE w.id = standing.id)
                 ) THEN 'keyless'
               ELSE 'superseded'
             END AS outcome
      FROM (
        SELECT s.*, rank() OVER (PARTITION BY s.topic, s.key, s.stop IS NULL ORDER BY s.id DESC) AS newest
        FROM (
          SELECT asked.id, d.archived_at, d.died_at, wanted.topic, d.key, l.message_id AS before,
                 coalesce(t.key_on_retry, def.key_on_retry) AS key_on_retry,
                 CASE
                   WHEN NOT coalesce(d.is_dead, false) THEN 'not_dead'
                   WHEN l.message_id IS NOT NULL THEN 'redriven_before'
                   WHEN p_force IS NOT TRUE AND d.redrives >= nullif(coalesce(t.max_redrives, def.max_redrives), 0)
                     THEN 'too_often'
                   -- It came before that was refused.
                   WHEN p_new_payload IS NOT TRUE AND NOT messages.is_within_size_limit(d.payload, d.headers)
                     THEN 'too_large'
                 END AS stop
          FROM (SELECT DISTINCT i.id FROM unnest(p_ids) AS i (id) WHERE i.id IS NOT NULL) AS asked
          LEFT JOIN LATERAL (
            SELECT a.topic, a.key, a.redrives, a.archived_at, a.archived_at AS died_at, a.payload, a.headers,
                   a.result NOT IN ('success', 'cancelled') AS is_dead
            FROM messages.message_archive AS a
            WHERE a.id = asked.id
            UNION ALL
            SELECT m.original_topic, NULL, m.redrives, NULL, m.dlq_moved_at, m.payload, m.headers, true
            FROM messages.dead_letter AS c
            JOIN messages.message AS m ON m.id = ANY (ARRAY[c.message_id])
            WHERE c.origin_id = asked.id
              AND NOT EXISTS (SELECT FROM messages.message_archive AS a WHERE a.id = asked.id)
          ) AS d ON true
          CROSS JOIN LATERAL (SELECT coalesce(p_topic, d.topic) AS topic) AS wanted
          JOIN messages.inherited_policy AS def ON def.topic = messages.inherits_from(wanted.topic)
          LEFT JOIN messages.topic AS t ON t.topic = wanted.topic
          LEFT JOIN messages.redrive_log AS l ON l.archived_id = asked.id
        ) AS s
      ) AS k
      LEFT JOIN LATERAL (
        SELECT m.id
        FROM messages.message AS m
        WHERE m.topic = k.topic AND m.key = k.key AND m.attempts = 0 AND m.claim_id IS NULL AND k.stop IS NULL
        OFFSET 0
      ) AS standing ON true
    ) AS r
  ) AS j
$$;
