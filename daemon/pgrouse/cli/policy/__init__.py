"""The commands for what is decided per topic: policies, subscriptions, schedules."""
