"""Integrations with frameworks. Nothing else in the package imports them."""
