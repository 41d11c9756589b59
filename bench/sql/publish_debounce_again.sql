-- One publish with a key that is debounced: nearly always one that waits, whose payload it replaces and whose time it moves.
\set n random(1, 1000)
SELECT id FROM messages.publish('noop', '{"n": 1}', p_key => 'k' || :n, p_debounce => '1 hour');
