"""The page: HTML with charts in it, that needs nothing from anywhere else."""
