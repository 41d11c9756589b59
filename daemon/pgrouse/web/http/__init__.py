"""What a request and an answer are: problems, paths, bodies, compression, static files, probes."""
