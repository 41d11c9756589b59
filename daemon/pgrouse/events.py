"""The names of log events, and nothing else. Dotted: noun.past-verb."""

DAEMON_STARTED = "daemon.started"
DAEMON_STOPPING = "daemon.stopping"
DAEMON_STOPPED = "daemon.stopped"
DAEMON_RELOAD_REFUSED = "daemon.reload_refused"
DRAIN_TIMED_OUT = "drain.timed_out"

HEARTBEAT_FAILED = "heartbeat.failed"
LOOP_FAILED = "loop.failed"
LOOP_RECOVERED = "loop.recovered"
LOOP_BROKEN = "loop.broken"
EVENT_LOOP_BLOCKED = "event_loop.blocked"

LISTENER_CONNECTED = "listener.connected"
LISTENER_DEGRADED = "listener.degraded"
LISTENER_RESTORED = "listener.restored"

TICK_FAILED = "tick.failed"
PG_CRON_ABSENT = "pg_cron.absent"

ATTEMPT_FAILED = "attempt.failed"
MESSAGE_REJECTED = "message.rejected"
MESSAGE_FAILED = "message.failed"
ATTEMPT_TIMED_OUT = "attempt.timed_out"
MESSAGE_LOCK_LOST = "message.lock_lost"
MESSAGE_OUTPUT_DROPPED = "message.output_dropped"
MESSAGE_ENDED_AFTER_COMPLETION = "message.ended_after_completion"
SETTLE_REFUSED = "settle.refused"
SETTLE_GIVEN_UP = "settle.given_up"

CHILD_DIED = "child.died"
PROCESS_EXITED = "process.exited"
