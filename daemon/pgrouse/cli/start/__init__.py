"""The commands to begin with: files to start from, the schema, the configuration, completion."""
