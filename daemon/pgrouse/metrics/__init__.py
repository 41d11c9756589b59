"""The HTTP endpoint of a daemon: metrics, liveness and readiness. Imported only if `metrics.listen` is set."""
