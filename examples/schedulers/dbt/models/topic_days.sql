select
  topic,
  (archived_at at time zone 'UTC')::date as day,
  count(*) as ended,
  count(*) filter (where is_dead) as dead,
  sum(attempts) as attempts,
  sum(run_s) as run_s,
  percentile_cont(0.95) within group (order by total_s) as p95_total_s
from {{ ref('ended') }}
group by topic, day
