"""The jobs: each is a command of `pgrouse pipeline`."""
