-- One row that is written again to see whether the file can be written.
CREATE TABLE write_check (
    id INTEGER PRIMARY KEY,
    filler BLOB NOT NULL
) STRICT;
