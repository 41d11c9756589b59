"""The commands for messages: publish, find, explain, end, redrive, replay, delete."""
