-- Channels and keys have no characters that cannot be seen: see messages.is_printable, which has the same pattern. For an ordinary name it costs
-- what the one before did. A domain is not looked at again when a row changes, but the copy of a dead message is a new row: so channels that
-- stand there already are changed. A key is not: it might become another's.
-- squawk-ignore ban-drop-constraint
ALTER DOMAIN messages.channel_name DROP CONSTRAINT message_channel_is_short_and_printable;
-- squawk-ignore ban-alter-domain-with-add-constraint
ALTER DOMAIN messages.channel_name ADD CONSTRAINT message_channel_is_short_and_printable
  CHECK (VALUE !~ '[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]' AND length(VALUE) BETWEEN 1 AND 200) NOT VALID;
-- squawk-ignore ban-drop-constraint
ALTER DOMAIN messages.key_name DROP CONSTRAINT message_key_is_short_and_printable;
-- squawk-ignore ban-alter-domain-with-add-constraint
ALTER DOMAIN messages.key_name ADD CONSTRAINT message_key_is_short_and_printable
  CHECK (VALUE !~ '[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]' AND length(VALUE) BETWEEN 1 AND 200) NOT VALID;
UPDATE messages.message SET channel = regexp_replace(channel, '[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]', '?', 'g') WHERE channel ~ '[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]';
