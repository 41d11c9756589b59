-- One publish with a key that is debounced: the first of a key.
\set n random(1, 1000000000)
SELECT id FROM messages.publish('noop', '{"n": 1}', p_key => 'k' || :n, p_debounce => '1 hour');
