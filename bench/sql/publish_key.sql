-- One publish with a key that replaces the message with the same key, as an application does it.
\set n random(1, 1000000000)
SELECT id FROM messages.publish('noop', '{"n": 1}', p_key => 'k' || :n, p_on_conflict => 'replace');
