"""Spark as a worker: each micro-batch is a claim."""
