-- Explain why there is no message with this id, neither live nor archived.
-- Called by: explain. Locks: nothing. Result: as explain; redriven, gone, or never_published.
CREATE OR REPLACE FUNCTION messages.explain_missing(p_id bigint)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
AS $$
DECLARE
  v_highest bigint := coalesce(pg_sequence_last_value('messages.message_id_seq'), 0);
BEGIN
  RETURN QUERY
  SELECT 'redriven',
         format(
           'it was redriven %s ago by %s as message %s', messages.format_interval(messages.now() - r.redriven_at),
           r.redriven_by, r.message_id),
         jsonb_build_object('message_id', r.message_id, 'redriven_at', r.redriven_at, 'redriven_by', r.redriven_by)
  FROM messages.redrive_log AS r WHERE r.archived_id = p_id;

  detail := jsonb_build_object('highest_id', v_highest);
  IF p_id BETWEEN 1 AND v_highest THEN
    code := 'gone';
    reason := 'it is neither live nor in the archive: it succeeded in a topic with archive_success = none, '
      'its day left the archive (retention), '
      || 'or the transaction that published it was rolled back or is still open';
  ELSE
    code := 'never_published';
    reason := format('it was never published: the highest id so far is %s', v_highest);
  END IF;
  RETURN NEXT;
END
$$;
