"""Encryption of the contents of messages: `[crypto]` of the configuration, and `Cipher` for publishers and consumers.

Except for the settings, nothing of this package is imported unless encryption is configured.
"""
