-- The vault: sealed turns, found by hashes. What is sealed cannot be read without the keyring.
CREATE TABLE vault_record (
    -- Rises for ever, so that the lowest is the oldest.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- All its names, sixteen bytes each, in the order it was sealed with.
    names BLOB NOT NULL,
    -- Stands before what is sealed, so that it is read without it.
    size INTEGER NOT NULL,
    sealed BLOB NOT NULL
) STRICT;

CREATE TABLE vault_name (
    name BLOB PRIMARY KEY,
    record INTEGER NOT NULL REFERENCES vault_record (id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX vault_name_record ON vault_name (record);

-- How much there is, so that nobody has to count.
CREATE TABLE vault_total (
    records INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

INSERT INTO vault_total (records, bytes) VALUES (0, 0);

CREATE TRIGGER vault_record_added AFTER INSERT ON vault_record BEGIN
    UPDATE vault_total SET records = records + 1, bytes = bytes + new.size;
END;

CREATE TRIGGER vault_record_removed AFTER DELETE ON vault_record BEGIN
    UPDATE vault_total SET records = records - 1, bytes = bytes - old.size;
END;
