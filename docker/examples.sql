-- The rights of the daemon of compose.yaml for the handlers of examples/, run once when the data volume is made.
SET search_path = pg_catalog, pg_temp;
\ir /examples/schema.sql
GRANT USAGE ON SCHEMA demo TO pgrouse_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA demo TO pgrouse_worker;
