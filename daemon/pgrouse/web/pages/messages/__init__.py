"""The pages of messages: the list, one message, what publishes, signals and acts on many."""
