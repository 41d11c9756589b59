-- Mark the staged rows that the policies of their topics reject: topics that accept no publishes, and rows that are too large.
-- Called by: publish_staged, before it inserts; what full topics and rates refuse is refused to the whole job.
-- Locks: the rows that it marks. Nothing is read while no topic of the database uses such a policy.
CREATE OR REPLACE FUNCTION messages.reject_staged(p_attempts uuid[])
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  IF NOT messages.has_policies() THEN
    RETURN;
  END IF;
  UPDATE messages.publish_stage AS s
  SET reason = CASE
    WHEN NOT t.accept_publishes THEN format('topic %s does not accept publishes', s.topic)
    ELSE format('it has %s bytes, max_payload_bytes of topic %s is %s',
                coalesce(octet_length(s.payload::text), octet_length(s.body)), s.topic, t.max_payload_bytes)
  END
  FROM (
    SELECT d.topic, a.accept_publishes, a.max_payload_bytes
    FROM (SELECT DISTINCT o.topic FROM messages.publish_stage AS o WHERE o.attempt = ANY (p_attempts) AND o.reason IS NULL) AS d
    CROSS JOIN LATERAL messages.publish_policy(d.topic) AS a
    WHERE NOT a.accept_publishes OR a.max_payload_bytes IS NOT NULL
  ) AS t
  WHERE s.attempt = ANY (p_attempts) AND s.reason IS NULL AND s.topic = t.topic
    AND (NOT t.accept_publishes OR coalesce(octet_length(s.payload::text), octet_length(s.body)) > t.max_payload_bytes);
END
$$;
