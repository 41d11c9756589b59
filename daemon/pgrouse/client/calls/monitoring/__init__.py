"""What shows how the queue is: counts, states, lists of messages, explanations, checks, alerts."""
