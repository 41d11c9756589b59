"""Functions over values: text, numbers, times, JSON, names. The folder sql/values has the same rules in SQL."""
