-- Note ends that what comes after these messages has to hear of: when the transaction commits the trigger ended passes them on.
-- Called by: tell_ended, hand_on. p_result: as in the archive, or redriven.
-- The trigger knows the ends of its transaction by the setting messages.endings, which is undone with a savepoint as its row is.
-- Locks: the rows it inserts.
CREATE OR REPLACE FUNCTION messages.note_endings(p_ids bigint[], p_result text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  -- Before the INSERT: a transaction may have set its constraints to be immediate.
  PERFORM set_config(
    'messages.endings',
    concat_ws(',', nullif(current_setting('messages.endings', true), ''), array_to_string(p_ids, ',')), true);
  INSERT INTO messages.ending (id, result)
  SELECT e.id, p_result FROM unnest(p_ids) AS e (id)
  ON CONFLICT (id) DO UPDATE SET result = excluded.result;
END
$$;
