-- One publish, as an application does it.
INSERT INTO messages.message (topic, payload) VALUES ('noop', '{"n": 1}');
