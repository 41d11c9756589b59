-- The settings of functions: what names mean in them, and which plans they may have.
-- Called by: pgrouse migrate, every time, after the functions: a function that is replaced loses its settings. It
-- alters only what differs. All of migrate is one transaction, so no session sees a function without its settings. The
-- rule: a function has the settings of each group below that names it, and every SECURITY DEFINER function has the
-- fixed search_path. All others have none: they run with those of their caller, and a function of one SELECT can only
-- then become part of its caller's statement. The one exception is lock_timeout, which is in the function's own file:
-- it belongs to what the function does.
-- Locks: the changed rows of pg_proc.
DO LANGUAGE plpgsql $$
DECLARE
  v_change pg_catalog.text;
BEGIN
  SET LOCAL search_path = pg_catalog, pg_temp;
  SET LOCAL standard_conforming_strings = on;
  FOR v_change IN
    WITH rule (settings, functions) AS (VALUES
      -- They run with the rights of their caller, who may have any search_path.
      (ARRAY['search_path=pg_catalog, pg_temp'], '
        check_backoff check_breaker check_channel check_policy check_topic doctor examine_connections examine_holders
        examine_server examine_settings examine_snapshots jsonb_text_bytes long_number_bytes notify notify_inserted
        prune_cron_history topic_regexps'),
      -- They look up a few rows of a table that may be large. A plan that is right for an empty table is wrong for a
      -- full one, and the one that a session made first is kept: so no plan may read a table as a whole.
      -- README.md (Plans) says what the statements do for the rest.
      -- A plan that has to read one would be so dear that it is compiled, which takes longer than to run it.
      (ARRAY['enable_seqscan=off', 'jit=off'], '
        apply_depth_changes batch_progress check_batches clamp_rates count_live create_depths debounce_message
        delete_staged examine_archive examine_conditions examine_ticks group_new_alerts has_payload is_throttled
        job_rejected latency list_exports list_topics lock_holders maintain_partitions merge_dead_counts new_blocked
        oldest_ready pending_with_key prune_measures prune_mutexes prune_throttles prune_web publish_staged
        recount_depth renotify_stale resume run_schedule save_step settle_delivery stats throttle_by_other
        throttle_key throughput topic_state touch_http_holders workflow_state'),
      -- It joins thousands of rows that it has computed with each other, of which no statistics tell: they are hashed.
      (ARRAY['enable_seqscan=off', 'enable_nestloop=off', 'jit=off'], '
        workflow_messages'),
      (ARRAY['jit=off'], '
        examine_topics examine_workers exported_position ready_topics subscription_changed'),
      -- They join a few rows with the big tables: a hash or a merge join would read one side as a whole.
      (ARRAY['enable_seqscan=off', 'enable_hashjoin=off', 'enable_mergejoin=off', 'jit=off'], '
        apply_missed_batch_changes cancel cancel_batch check_signal close_batch conditions count_runs dead_groups
         dead_topics delete delete_replaced_steps expire_messages explain fan_out fire_schedules is_handled incidents
         lineage load_events load_steps open_predecessors pause_deferred predecessors preview_redrive propagate_ends
         propagate_missed_ends prune prune_keys prune_orphans purge purge_archive purge_topic redrive redrive_batch
         redrive_edited
        redrive_where reencrypt release_orphaned replay requeue_dead_letters resolve_blocked retry_now set_progress
        signal signal_key skip unblock unhandled_topics wait_for wait_for_many workflow'),
      -- Workers call them all the time: they are planned once per session.
      (ARRAY['enable_seqscan=off', 'enable_hashjoin=off', 'enable_mergejoin=off', 'jit=off',
        'plan_cache_mode=force_generic_plan'], '
        apply_batch_changes_at_commit claim_with_next_due claimed_ids completion_states defer fail heartbeat
        read_claimed reject release results retry save_logs wait_for_event'),
      -- It locks its rows in the order of their ids, as an index has them.
      (ARRAY['enable_seqscan=off', 'enable_bitmapscan=off', 'enable_hashjoin=off', 'enable_mergejoin=off', 'jit=off',
        'plan_cache_mode=force_generic_plan'], '
        complete'),
      (ARRAY['enable_seqscan=off', 'jit=off', 'plan_cache_mode=force_generic_plan'], '
        count_ready expire_locks next_due'),
      -- They read an index in its order, and stop early.
      (ARRAY['enable_sort=off'], '
        due_channels'),
      (ARRAY['enable_seqscan=off', 'enable_sort=off', 'jit=off'], '
        raise_low_water'),
      (ARRAY['enable_seqscan=off', 'enable_bitmapscan=off', 'enable_sort=off', 'enable_hashjoin=off',
        'enable_mergejoin=off', 'jit=off'], '
        find_dead'),
      (ARRAY['enable_seqscan=off', 'enable_bitmapscan=off', 'enable_hashjoin=off', 'enable_mergejoin=off', 'jit=off'], '
        find_messages')
    ), function AS (
      SELECT p.oid, p.proname, p.prosecdef, p.proconfig
      FROM pg_proc AS p
      WHERE p.pronamespace = 'messages'::regnamespace AND p.prokind = 'f'
        AND p.proowner = (SELECT r.oid FROM pg_roles AS r WHERE r.rolname = current_user)
    ), wanted AS (
      SELECT f.oid, s.setting
      FROM function AS f
      JOIN rule AS g ON f.proname = ANY (string_to_array(regexp_replace(g.functions, E'\\s+', ' ', 'g'), ' '))
      CROSS JOIN unnest(g.settings) AS s (setting)
      UNION
      SELECT f.oid, 'search_path=pg_catalog, pg_temp' FROM function AS f WHERE f.prosecdef
    ), actual AS (
      SELECT f.oid, s.setting FROM function AS f CROSS JOIN unnest(f.proconfig) AS s (setting)
      WHERE s.setting NOT LIKE 'lock_timeout=%'
    ), change AS (
      SELECT oid,
             CASE WHEN w.setting IS NULL THEN 'RESET ' || split_part(setting, '=', 1)
               ELSE 'SET ' || setting END AS change
      FROM wanted AS w
      FULL JOIN actual AS a USING (oid, setting)
      WHERE w.setting IS NULL OR a.setting IS NULL
    )
    -- A setting with another value is both, and is reset first.
    SELECT format('ALTER FUNCTION %s %s', c.oid::regprocedure, string_agg(c.change, ' ' ORDER BY c.change))
    FROM change AS c GROUP BY c.oid
  LOOP
    EXECUTE v_change;
  END LOOP;
END
$$;
