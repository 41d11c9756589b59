"""The commands for operators: counts, workers, checks, alerts, the audit log, tokens, keys."""
