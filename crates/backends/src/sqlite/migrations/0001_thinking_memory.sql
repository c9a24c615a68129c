-- Thinking memory: hashes and origins only, never contents.
CREATE TABLE origin (
    id INTEGER PRIMARY KEY,
    domain TEXT NOT NULL,
    backend TEXT NOT NULL,
    model TEXT NOT NULL,
    credential TEXT NOT NULL,
    UNIQUE (domain, backend, model, credential)
) STRICT;

CREATE TABLE block (
    key BLOB PRIMARY KEY,
    origin INTEGER REFERENCES origin (id),
    cut INTEGER NOT NULL,
    prefix BLOB,
    -- Names of domains, one a line.
    accepted TEXT NOT NULL,
    refused TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE lineage (
    id BLOB PRIMARY KEY,
    mark BLOB NOT NULL,
    used INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE standing (
    lineage BLOB NOT NULL,
    key BLOB NOT NULL,
    session INTEGER NOT NULL,
    confirmed INTEGER NOT NULL,
    registered INTEGER NOT NULL,
    gone INTEGER NOT NULL,
    PRIMARY KEY (lineage, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE mark (
    id BLOB PRIMARY KEY,
    session INTEGER NOT NULL,
    backend TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE fact (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
