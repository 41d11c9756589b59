"""The page: HTML with charts in it that loads nothing."""
