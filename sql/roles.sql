-- The roles of the queue. They belong to the server, not to the database; only who may create roles makes them, else
-- they are left out.
-- Called by: pgrouse migrate, first. Two databases of one server may be migrated at once: anyone who comes second finds
-- the role there. A superuser hands the schema to messages_owner, so that no function of it runs with a superuser's
-- rights.
DO LANGUAGE plpgsql $$
DECLARE
  v_role pg_catalog.text;
BEGIN
  SET LOCAL search_path = pg_catalog, pg_temp;
  IF NOT (SELECT r.rolsuper OR r.rolcreaterole FROM pg_roles AS r WHERE r.rolname = current_user) THEN
    RETURN;
  END IF;
  FOREACH v_role IN ARRAY ARRAY[
    'messages_owner', 'messages_publisher', 'messages_worker', 'messages_operator', 'messages_analyst',
    'messages_maintainer']
  LOOP
    CONTINUE WHEN EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = v_role);
    BEGIN
      EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
      NULL;
    END;
  END LOOP;
  IF (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user) THEN
    EXECUTE format('GRANT CREATE ON DATABASE %I TO messages_owner', current_database());
    -- To see how long others hold a snapshot: messages.conditions. What it makes of that is all that anybody sees.
    IF NOT pg_has_role('messages_owner', 'pg_read_all_stats', 'MEMBER') THEN
      BEGIN
        GRANT pg_read_all_stats TO messages_owner;
      EXCEPTION WHEN unique_violation OR internal_error THEN
        NULL;
      END;
    END IF;
  END IF;
END
$$;
