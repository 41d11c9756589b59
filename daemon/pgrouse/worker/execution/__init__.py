"""From a claimed message to its outcome: slots, handlers, attempts, settling."""
