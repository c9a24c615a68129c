-- Milliseconds since 1970, by the clock of the database: the clocks of several instances differ.
CREATE FUNCTION unix_ms() RETURNS BIGINT LANGUAGE sql VOLATILE
AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint';

-- Thinking memory: hashes and origins only, never contents.
CREATE TABLE origin (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    domain TEXT NOT NULL,
    backend TEXT NOT NULL,
    model TEXT NOT NULL,
    credential TEXT NOT NULL,
    UNIQUE (domain, backend, model, credential)
);

CREATE TABLE block (
    key BYTEA PRIMARY KEY,
    origin BIGINT REFERENCES origin (id),
    cut BOOLEAN NOT NULL,
    prefix BYTEA,
    dropped BYTEA,
    -- Names of domains and of backends, one a line.
    accepted TEXT NOT NULL,
    refused TEXT NOT NULL,
    -- When it was last written.
    changed BIGINT NOT NULL
);

CREATE INDEX block_changed ON block (changed);

CREATE TABLE lineage (
    id BYTEA PRIMARY KEY,
    mark BYTEA NOT NULL,
    used BIGINT NOT NULL
);

CREATE INDEX lineage_used ON lineage (used);
CREATE INDEX lineage_mark ON lineage (mark);

CREATE TABLE standing (
    lineage BYTEA NOT NULL,
    key BYTEA NOT NULL,
    session BIGINT NOT NULL,
    confirmed BOOLEAN NOT NULL,
    registered BIGINT NOT NULL,
    gone BOOLEAN NOT NULL,
    -- Which instance wrote it last, and when.
    writer BYTEA NOT NULL,
    changed BIGINT NOT NULL,
    PRIMARY KEY (lineage, key)
);

CREATE INDEX standing_key ON standing (key);
CREATE INDEX standing_changed ON standing (lineage, changed);

CREATE TABLE mark (
    id BYTEA PRIMARY KEY,
    session BIGINT NOT NULL,
    backend TEXT NOT NULL
);

CREATE TABLE fact (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- One row that is written again to see whether the database can be written.
CREATE TABLE write_check (
    id BIGINT PRIMARY KEY,
    filler BYTEA NOT NULL
);
