"""The metrics of a daemon and of the queue, and the HTTP endpoint of a daemon: metrics, liveness and readiness."""
