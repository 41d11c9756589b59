-- One publish with a key that is debounced: nearly always one that waits, whose payload and time it replaces.
\set n random(1, 1000)
SELECT id FROM messages.publish('noop', '{"n": 1}', p_key => 'k' || :n, p_debounce => '1 hour');
