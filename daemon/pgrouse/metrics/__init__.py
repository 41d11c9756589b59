"""What a daemon tells of itself by HTTP: metrics, and whether it lives and is ready. Only imported where `metrics.listen` is set."""
