-- When a run in progress was last read at an instance that does not write it.
ALTER TABLE run ADD COLUMN read_at INTEGER;
