"""What every connection has: the name of the schema, the search path, the settings; and what errors mean."""
