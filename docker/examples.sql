-- What the daemon of compose.yaml needs for the handlers of examples/, run once when the data volume is made.
\ir /examples/schema.sql
GRANT USAGE ON SCHEMA demo TO pgrouse_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA demo TO pgrouse_worker;
