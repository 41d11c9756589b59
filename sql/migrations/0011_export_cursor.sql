-- How far an export has read the archive. While a row stands here the retention drops nothing that lies above its position.

CREATE TABLE messages.export_cursor (
  name              text        COLLATE "C" PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$'),
  -- Where it writes to, for people; and what tells that lake from every other.
  lake              text        NOT NULL,
  lake_id           text        NOT NULL,
  -- Transactions are counted in one cluster: in another one (a restored dump) the position says nothing.
  system_identifier text        NOT NULL,
  -- Everything up to and with this row is exported: archive_xid, id.
  xid               xid8        NOT NULL DEFAULT '0',
  id                bigint      NOT NULL DEFAULT 0,
  opened_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
  opened_by         text        NOT NULL DEFAULT session_user,
  advanced_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);
