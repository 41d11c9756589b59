{{ config(materialized='incremental', unique_key='id') }}
-- A transaction that began early may commit late, so a row may come behind newer ones. The order of transactions does
-- not miss it: rows are taken up to the oldest transaction that still runs, and from there by the next run.
select *
from {{ source('pgrouse', 'ended') }}
where archive_xid < pg_snapshot_xmin(pg_current_snapshot())
{% if is_incremental() %}
  and archive_xid > (select coalesce(max(archive_xid::text::numeric), 0)::text::xid8 from {{ this }})
{% endif %}
