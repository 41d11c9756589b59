-- The rights of each role. Only the owner writes to tables; every change goes through a function, and PUBLIC may
-- execute none.
-- Called by: pgrouse migrate, last, every time: functions are new after each change, and new functions are open to
-- PUBLIC. (A default privilege per schema does not take that away; one per role would reach beyond this schema.)
DO LANGUAGE plpgsql $$
DECLARE
  v_grant pg_catalog.text[];
BEGIN
  SET LOCAL search_path = pg_catalog, pg_temp;
  REVOKE ALL ON SCHEMA messages FROM PUBLIC;
  REVOKE ALL ON ALL TABLES IN SCHEMA messages FROM PUBLIC;
  REVOKE ALL ON ALL SEQUENCES IN SCHEMA messages FROM PUBLIC;
  REVOKE ALL ON ALL FUNCTIONS IN SCHEMA messages FROM PUBLIC;

  FOREACH v_grant SLICE 1 IN ARRAY ARRAY[
    -- An INSERT of these columns is a publish; the id comes back. The trigger reads who sleeps with the publisher's
    -- rights.
    ['messages_publisher', 'USAGE ON SCHEMA messages'],
    ['messages_publisher', 'INSERT (topic, channel, key, priority, payload, body, headers, available_at, expires_at,
      max_attempts, timeout, backoff, retention, batch_id) ON messages.message'],
    ['messages_publisher', 'SELECT (id, topic) ON messages.message'],
    ['messages_publisher', 'SELECT ON messages.sleeper'],
    ['messages_publisher', 'SELECT ON SEQUENCE messages.armed_until, messages.always_topic_bits,
      messages.policy_topic_bits, messages.batch_flag, messages.pattern_flag'],
    ['messages_publisher', 'SELECT (topic, notify, max_payload_bytes, payload_schema) ON messages.topic,
      messages.inherited_policy'],
    ['messages_publisher', 'EXECUTE ON FUNCTION messages.publish, messages.payload_schema_digest, messages.new_message,
      messages.notify_inserted, messages.long_number_bytes, messages.check_backoff, messages.notify,
      messages.inherits_from, messages.patterns_of'],
    -- It tells a publisher nothing but the ends of those of its messages for which it asked when it published.
    ['messages_publisher', 'EXECUTE ON FUNCTION messages.wait_for_many'],
    ['messages_publisher', 'EXECUTE ON FUNCTION messages.create_batch, messages.close_batch, messages.batch_progress'],
    ['messages_publisher', 'EXECUTE ON FUNCTION messages.signal, messages.signal_key, messages.sign_signal'],
    -- In bulk: staged by COPY, published by a function that publishes only what its caller staged. No role reads the
    -- stage.
    ['messages_publisher', 'INSERT ON messages.publish_stage'],
    ['messages_publisher', 'EXECUTE ON FUNCTION messages.begin_staging, messages.publish_staged, messages.delete_staged,
      messages.job_result, messages.job_rejected'],

    ['messages_worker', 'USAGE ON SCHEMA messages'],
    ['messages_worker', 'EXECUTE ON FUNCTION messages.now, messages.claim, messages.claim_with_next_due,
      messages.next_due, messages.complete, messages.completion_states, messages.reject, messages.fail, messages.retry,
      messages.defer, messages.release, messages.release_orphaned, messages.heartbeat, messages.set_progress,
      messages.cancelled_ids, messages.count_runs, messages.save_step, messages.save_logs, messages.load_steps,
      messages.predecessors, messages.load_events, messages.wait_for_event, messages.signal, messages.signal_key,
      messages.sign_signal'],
    ['messages_worker', 'EXECUTE ON FUNCTION messages.read_claimed, messages.claimed_ids, messages.results,
      messages.count_ready, messages.lock_consumer'],
    ['messages_worker', 'EXECUTE ON FUNCTION messages.arm, messages.disarm, messages.lower_armed_until,
      messages.ready_topics, messages.draw_xid, messages.oldest_running_xid, messages.notify'],
    ['messages_worker', 'EXECUTE ON FUNCTION messages.register_worker, messages.touch_worker, messages.record_measures,
      messages.unregister_worker, messages.touch_http_worker, messages.touch_http_holders, messages.tick,
      messages.raise_low_water'],
    ['messages_worker', 'EXECUTE ON FUNCTION messages.fire_schedules, messages.next_schedule_due, messages.next_ticks'],
    -- Alerts are delivered by daemons, or by a separate process that an operator runs.
    ['messages_worker', 'EXECUTE ON FUNCTION messages.claim_delivery, messages.settle_delivery,
      messages.alerting_problem'],
    ['messages_worker', 'SELECT ON messages.migration, messages.topic, messages.channel, messages.channel_state,
      messages.subscription, messages.schedule, messages.schedule_state, messages.worker, messages.worker_state,
      messages.inherited_policy'],
    -- channel_state and worker_state, and lists of schedules, call them; inherits_from reads the sequence.
    ['messages_worker', 'SELECT ON SEQUENCE messages.pattern_flag'],
    ['messages_worker', 'EXECUTE ON FUNCTION messages.is_paused, messages.inherits_from, messages.patterns_of,
      messages.topic_regexps'],

    ['messages_operator', 'USAGE ON SCHEMA messages'],
    ['messages_operator', 'SELECT ON ALL TABLES IN SCHEMA messages'],
    ['messages_operator', 'INSERT, UPDATE, DELETE ON messages.topic, messages.channel, messages.schedule,
      messages.subscription'],
    ['messages_operator', 'EXECUTE ON FUNCTION messages.now, messages.cancel, messages.skip, messages.redrive,
      messages.tick, messages.stats, messages.list_topics, messages.unhandled_topics'],
    -- A publisher may be given the first one too; it shows outputs and errors of every message.
    ['messages_operator', 'EXECUTE ON FUNCTION messages.wait_for, messages.wait_for_many'],
    ['messages_operator', 'EXECUTE ON FUNCTION messages.redrive_where, messages.redrive_edited,
      messages.requeue_dead_letters, messages.replay, messages.purge_archive, messages.delete, messages.purge_topic'],
    ['messages_operator', 'EXECUTE ON FUNCTION messages.create_batch, messages.close_batch, messages.batch_progress,
      messages.cancel_batch, messages.redrive_batch'],
    ['messages_operator', 'EXECUTE ON FUNCTION messages.find_messages, messages.retry_now, messages.unblock,
      messages.workflow, messages.workflow_state, messages.workflow_messages, messages.edit, messages.reencrypt,
      messages.display_json, messages.signal, messages.signal_key, messages.sign_signal, messages.check_signal'],
    ['messages_operator', 'EXECUTE ON FUNCTION messages.dead_topics, messages.find_dead, messages.preview_redrive,
      messages.dead_groups, messages.lineage'],
    ['messages_operator', 'EXECUTE ON FUNCTION messages.check_topic, messages.topic_changed, messages.check_policy,
      messages.check_backoff, messages.check_breaker, messages.check_channel, messages.channel_changed,
      messages.is_printable'],
    ['messages_operator', 'SELECT ON SEQUENCE messages.pattern_flag'],
    ['messages_operator', 'EXECUTE ON FUNCTION messages.topic_matches, messages.patterns_of, messages.inherits_from,
      messages.worker_of, messages.topic_regexps'],
    ['messages_operator', 'EXECUTE ON FUNCTION messages.pause, messages.resume, messages.is_paused,
      messages.live_state, messages.due_at, messages.is_blocked, messages.topic_state, messages.explain,
      messages.lock_policies, messages.lock_holders'],
    ['messages_operator', 'EXECUTE ON FUNCTION messages.latency, messages.throughput, messages.quantile,
      messages.unpack_histogram, messages.snapshot_age'],
    ['messages_operator', 'EXECUTE ON FUNCTION messages.open_export, messages.advance_export, messages.delete_export,
      messages.list_exports, messages.lock_export, messages.unlock_export'],
    ['messages_operator', 'EXECUTE ON FUNCTION messages.silence, messages.unsilence, messages.silence_of,
      messages.conditions, messages.open_conditions, messages.incidents, messages.replay_alerts, messages.delete_sink,
      messages.claim_delivery, messages.settle_delivery, messages.alerting_problem, messages.alert_severity'],
    ['messages_operator', 'INSERT, UPDATE, DELETE ON messages.alert_threshold'],
    ['messages_operator', 'EXECUTE ON FUNCTION messages.next_ticks, messages.run_schedule, messages.pause_schedule,
      messages.resume_schedule'],

    -- The web server acts as an operator; what a token may do it sees to itself.
    ['messages_operator', 'EXECUTE ON FUNCTION messages.add_token, messages.revoke_token, messages.check_token,
      messages.open_session, messages.open_user_session, messages.check_session, messages.close_session,
      messages.begin_request, messages.end_request, messages.drain_worker, messages.scale_worker,
      messages.run_maintenance'],
    ['messages_operator', 'EXECUTE ON FUNCTION messages.doctor, messages.examine_server, messages.examine_connections,
      messages.examine_settings, messages.examine_holders, messages.examine_snapshots, messages.examine_tables,
      messages.examine_schema, messages.examine_archive, messages.examine_ticks, messages.examine_workers,
      messages.examine_topics, messages.examine_conditions'],

    ['messages_analyst', 'USAGE ON SCHEMA messages'],
    ['messages_analyst', 'SELECT (id, topic, channel, key, priority, created_at, available_at, attempts, runs, claim_id,
      locked_by, locked_at, lock_expires_at, history, expires_at, max_attempts, timeout, backoff, retention, origin_id,
      original_topic, dlq_moved_at, redriven_from, redrives, batch_id) ON messages.message'],
    ['messages_analyst', 'SELECT (id, topic, channel, key, priority, created_at, available_at, attempts, runs, claim_id,
      locked_at, history, result, error, error_fingerprint, handled_by, archived_at, archive_xid, redriven_from,
      expires_at, max_attempts, timeout, backoff, retention, origin_id, original_topic, dlq_moved_at, redrives,
      batch_id) ON messages.message_archive'],
    ['messages_analyst', 'SELECT (id, name, created_at, created_by, role, closed_at, cancelled_at, finished_at) ON
      messages.batch'],
    ['messages_analyst', 'SELECT ON messages.batch_shard, messages.batch_callback, messages.batch_state'],
    ['messages_analyst', 'SELECT ON messages.state, messages.ended, messages.topic, messages.inherited_policy,
      messages.channel,
      messages.channel_state, messages.subscription, messages.worker, messages.worker_state, messages.tick_mark,
      messages.measure, messages.worker_measure'],
    ['messages_analyst', 'EXECUTE ON FUNCTION messages.latency, messages.throughput, messages.quantile,
      messages.unpack_histogram, messages.snapshot_age'],
    ['messages_analyst', 'EXECUTE ON FUNCTION messages.dead_topics, messages.find_dead, messages.dead_groups,
      messages.lineage'],
    ['messages_analyst', 'EXECUTE ON FUNCTION messages.now, messages.doctor, messages.examine_server,
      messages.examine_connections, messages.examine_settings, messages.examine_holders, messages.examine_snapshots,
      messages.examine_tables, messages.examine_schema, messages.examine_archive, messages.examine_ticks,
      messages.examine_workers, messages.examine_topics, messages.examine_conditions'],
    ['messages_analyst', 'EXECUTE ON FUNCTION messages.stats, messages.topic_state, messages.is_paused,
      messages.live_state, messages.due_at, messages.is_blocked, messages.list_topics, messages.unhandled_topics,
      messages.explain, messages.workflow, messages.workflow_state, messages.workflow_messages, messages.list_exports'],
    ['messages_analyst', 'SELECT ON SEQUENCE messages.pattern_flag'],
    ['messages_analyst', 'EXECUTE ON FUNCTION messages.conditions, messages.open_conditions, messages.lock_holders,
      messages.topic_matches, messages.patterns_of, messages.inherits_from, messages.worker_of,
      messages.topic_regexps'],

    ['messages_maintainer', 'USAGE ON SCHEMA messages'],
    ['messages_maintainer', 'EXECUTE ON FUNCTION messages.tick, messages.expire_locks, messages.expire_messages,
      messages.propagate_missed_ends, messages.update_breakers, messages.renotify_stale, messages.fire_schedules,
      messages.apply_missed_batch_changes, messages.update_conditions, messages.raise_low_water,
      messages.maintain_partitions, messages.purge, messages.prune']
  ] LOOP
    CONTINUE WHEN NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = v_grant[1]);
    EXECUTE format('GRANT %s TO %I', v_grant[2], v_grant[1]);
  END LOOP;
  -- Operators read all tables but this one: a signature must come from sign_signal.
  IF EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = 'messages_operator') THEN
    REVOKE ALL ON messages.signing_key FROM messages_operator;
  END IF;
END
$$;
