"""Spark as a worker: a micro-batch is a claim."""
