-- How large a message is when it is handed out: the text of its JSON, not what is stored of it. 2,400 bytes stored can be 1.2 GB of text.
-- The size is kept beside the message, so that a claim can be cut by it without writing the text once more.

-- The table is rewritten under its lock, once; only a column that the server itself fills is right whoever publishes. The constraints that go
-- come back at once, tighter and without a scan; the function that goes comes back with one argument more.
-- squawk-ignore-file ban-drop-constraint, ban-alter-domain-with-add-constraint, adding-field-with-default, ban-drop-function

-- As in sql/functions/long_numbers.sql. It is here since rows are measured below.
CREATE FUNCTION messages.long_numbers(p_json jsonb)
RETURNS integer
LANGUAGE plpgsql
IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  -- What comes from another table may be compressed: its size says nothing.
  v_json  jsonb   := p_json #> '{}'::text[];
  v_bytes integer := 0;
  v_next  integer;
BEGIN
  IF pg_column_size(v_json) > 16777216 THEN
    RETURN 1073741823;
  END IF;
  FOR v_next IN
    SELECT length(n.number::text)
    FROM jsonb_path_query(v_json, 'strict $.** ? (@.type() == "number")') AS n (number)
    WHERE scale(n.number::numeric) > 100 OR abs(n.number::numeric) > 1e100
  LOOP
    v_bytes := v_bytes + v_next;
    IF v_bytes > 16777216 THEN
      RETURN 1073741823;
    END IF;
  END LOOP;
  RETURN v_bytes;
END
$$;

-- As in sql/functions/text_bytes.sql.
CREATE FUNCTION messages.text_bytes(p_json jsonb)
RETURNS integer
LANGUAGE plpgsql
IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  -- No more than 179 MB, if it is made of nothing but the longest numbers. What is compressed says nothing of how large it is.
  IF (pg_column_compression(p_json) IS NULL AND pg_column_size(p_json) <= 16384)
    OR messages.long_numbers(p_json) <= 16777216 THEN
    RETURN octet_length(p_json::text);
  END IF;
  RETURN 1073741823;
END
$$;

DO $$
DECLARE
  v_ids bigint[];
BEGIN
  SELECT array_agg(m.id) INTO v_ids
  FROM messages.message AS m
  WHERE greatest(messages.long_numbers(m.payload), messages.long_numbers(m.headers)) > 16777216;
  IF v_ids IS NOT NULL THEN
    RAISE EXCEPTION 'messages % are too large as text for any worker', v_ids
      USING ERRCODE = '54000', HINT = format('SELECT messages.cancel(%L), and migrate again', v_ids);
  END IF;
END
$$;

-- What is small is not looked at here: its text has 179 MB at most, and is measured below.
-- NOT VALID: what is there already stays. A claim ends what it cannot hand out.
ALTER DOMAIN messages.json_up_to_16_mib DROP CONSTRAINT message_payload_fits_16_mib;
ALTER DOMAIN messages.json_up_to_16_mib ADD CONSTRAINT message_payload_fits_16_mib CHECK (
  CASE
    WHEN pg_column_size(VALUE) <= 16384 AND pg_column_compression(VALUE) IS NULL THEN true
    ELSE messages.long_numbers(VALUE) <= 16777216
  END) NOT VALID;
ALTER DOMAIN messages.json_object DROP CONSTRAINT message_headers_are_an_object;
ALTER DOMAIN messages.json_object ADD CONSTRAINT message_headers_are_an_object CHECK (
  CASE
    WHEN VALUE IS NULL THEN true
    WHEN jsonb_typeof(VALUE) <> 'object' THEN false
    WHEN pg_column_size(VALUE) <= 16384 AND pg_column_compression(VALUE) IS NULL THEN octet_length(VALUE::text) <= 65536
    WHEN messages.long_numbers(VALUE) <= 65536 THEN octet_length(VALUE::text) <= 65536
    ELSE false
  END) NOT VALID;

-- What workers give: state, progress, output. No text of what is small is too large.
CREATE DOMAIN messages.given_json AS jsonb
  CONSTRAINT message_json_fits_16_mib CHECK (
    CASE
      WHEN pg_column_size(VALUE) <= 1024 AND pg_column_compression(VALUE) IS NULL THEN true
      ELSE messages.text_bytes(VALUE) <= 16777216
    END);

-- The payload or body, and the headers; not the state, which attempts write: what an UPDATE does not name is not measured again.
CREATE DOMAIN messages.content_size AS integer;
ALTER TABLE messages.message
  ADD COLUMN content_bytes messages.content_size GENERATED ALWAYS AS
    (coalesce(octet_length(payload::text), octet_length(body)) + coalesce(octet_length(headers::text), 0)) STORED;
-- 16 MiB, and 64 KiB for the headers.
ALTER DOMAIN messages.content_size ADD CONSTRAINT message_contents_fit_16_mib CHECK (VALUE <= 16842752) NOT VALID;

-- It has an argument more.
DROP FUNCTION IF EXISTS messages.claim(text, text[], integer, integer[], bigint, interval, text, jsonb, integer);
