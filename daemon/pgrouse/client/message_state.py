"""What messages are called: until they end as `messages.live_state` says, then by their result."""

WAITING = ("ready", "delayed", "blocked", "retrying", "waiting")
LIVE = (*WAITING, "running")
# The results of dead messages.
DEAD = ("failed", "rejected", "lock_expired", "expired")
RESULTS = ("success", *DEAD, "cancelled")
