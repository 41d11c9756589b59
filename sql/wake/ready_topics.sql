-- Returns the given topics in which a message is due, as `next_due` reports it for each: for a program that waits for
-- messages on behalf of several workers.
--
-- Result: the topics in the order in which they were given.
-- Errors: none.
-- Locks: none.
-- Repeat: it only reads.
-- Called by: the web server, once for all requests that wait for messages.
CREATE OR REPLACE FUNCTION messages.ready_topics(p_topics text[])
RETURNS SETOF text
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT t.topic
  FROM unnest(p_topics) WITH ORDINALITY AS t (topic, nth)
  WHERE messages.next_due(ARRAY[t.topic]) <= '0'
  ORDER BY t.nth
$$;
