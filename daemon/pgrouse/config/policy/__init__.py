"""The settings of policies of topics and channels, and the schemas of payloads."""
