-- Policies that no clock can reckon with: a retention beyond the first year, a rate whose next message is due after the last one. They made
-- the maintenance, or claims, fail. check_policy refuses them now; what was written before is brought to the bounds. (Not by LEAST and
-- GREATEST, which pass over NULL.)
UPDATE messages.topic AS t
SET retention = CASE WHEN t.retention > '1000 years' THEN '1000 years' ELSE t.retention END,
    dequeue_rate = CASE WHEN t.dequeue_rate > 0 AND t.dequeue_rate < 0.000001 THEN 0.000001 ELSE t.dequeue_rate END,
    publish_rate = CASE WHEN t.publish_rate > 0 AND t.publish_rate < 0.000001 THEN 0.000001 ELSE t.publish_rate END
WHERE t.retention > '1000 years' OR (t.dequeue_rate > 0 AND t.dequeue_rate < 0.000001) OR (t.publish_rate > 0 AND t.publish_rate < 0.000001);
