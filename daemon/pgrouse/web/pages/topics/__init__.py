"""The pages of topics: the list, and one topic."""
