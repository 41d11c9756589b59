"""DataFrames become messages."""
