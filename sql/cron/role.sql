-- The role that pg_cron's jobs run as, where the schema belongs to a role that cannot log in: pg_cron wants a login
-- even for its own workers. It has no password, may maintain the queue, and nothing else. A job whose role was dropped
-- stops pg_cron for everybody on the server; what is granted here makes DROP ROLE refuse until the jobs and these
-- grants are gone.
-- Called by: pgrouse.cron and docker/postgres/install-cron.sh, in the database of the queue, by a superuser.
DO LANGUAGE plpgsql $$
BEGIN
  SET LOCAL search_path = pg_catalog, pg_temp;
  IF NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = 'messages_cron') THEN
    BEGIN
      CREATE ROLE messages_cron LOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
      NULL; -- another database's installation was faster
    END;
  END IF;
  EXECUTE format('GRANT CONNECT ON DATABASE %I TO messages_cron', current_database());
  GRANT messages_maintainer TO messages_cron;
  GRANT EXECUTE ON FUNCTION messages.prune_cron_history TO messages_cron;
  ALTER ROLE messages_cron SET lock_timeout = '2s';
  ALTER ROLE messages_cron SET statement_timeout = '50s';
END
$$;
