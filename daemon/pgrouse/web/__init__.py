"""The web server: the HTTP API `/v1` and the dashboard. The daemon never imports it."""
