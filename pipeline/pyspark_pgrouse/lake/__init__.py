"""The archive as a lake of Parquet files."""
