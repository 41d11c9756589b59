"""Encryption of what messages carry: `[crypto]` of the configuration, and `Cipher` for publishers and consumers.

Nothing of it is imported before it is configured, but for its settings.
"""
