-- Who works over HTTP stands in the registry too: by the name that its claims give, without a process that could be asked.
ALTER TABLE messages.worker ADD COLUMN kind text NOT NULL DEFAULT 'daemon' CHECK (kind IN ('daemon', 'http'));
