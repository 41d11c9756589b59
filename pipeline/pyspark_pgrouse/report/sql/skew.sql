-- One row per topic of channels: top_share of its largest channel, max_over_mean, gini (0 = all alike, towards 1 = one
-- has all), the largest five.
CREATE TABLE skew AS
WITH
  ranked AS (
    SELECT
      *,
      row_number() OVER (PARTITION BY topic ORDER BY messages, channel) AS rank,
      row_number() OVER (PARTITION BY topic ORDER BY messages DESC, channel) AS place
    FROM channels
  ),
  grouped AS (
    SELECT
      topic,
      count(*) AS channels,
      sum(messages)::BIGINT AS total,
      max(messages) AS most,
      sum(rank * messages) AS weighted,
      list(struct_pack(channel := channel, messages := messages) ORDER BY place) FILTER (WHERE place <= 5) AS top
    FROM ranked
    GROUP BY topic
  )
SELECT
  topic,
  channels,
  total AS messages,
  most / total AS top_share,
  most * channels / total AS max_over_mean,
  2 * weighted / (channels * total) - (channels + 1) / channels AS gini,
  top
FROM grouped;
