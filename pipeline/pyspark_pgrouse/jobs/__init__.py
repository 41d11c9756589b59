"""The jobs: each is a command of `pgrouse pipeline`, and a program for spark-submit."""
