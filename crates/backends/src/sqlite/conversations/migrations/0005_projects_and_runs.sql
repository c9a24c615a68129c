-- Projects: trees of nodes with named branches. Their nodes never expire.
CREATE TABLE project (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    created INTEGER NOT NULL,
    deleted INTEGER,
    -- JSON that needs no key, here and below.
    facts TEXT NOT NULL,
    sealed BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX project_owner ON project (owner, id);

ALTER TABLE reference ADD COLUMN project TEXT;
ALTER TABLE reference ADD COLUMN name TEXT;
ALTER TABLE reference ADD COLUMN facts TEXT;

CREATE UNIQUE INDEX reference_name ON reference (project, name) WHERE project IS NOT NULL;

ALTER TABLE node ADD COLUMN project TEXT;
ALTER TABLE node ADD COLUMN facts TEXT;
ALTER TABLE node ADD COLUMN has_thinking INTEGER NOT NULL DEFAULT 0;
ALTER TABLE node ADD COLUMN thinking_token_count INTEGER;
ALTER TABLE node ADD COLUMN encrypted_thinking_content BLOB;
ALTER TABLE node ADD COLUMN encrypted_thinking_signature BLOB;

CREATE INDEX node_project ON node (project, id) WHERE project IS NOT NULL;

-- The providers' replies as they were captured. A table of its own, so that reading nodes stays fast.
CREATE TABLE raw_response (
    node TEXT PRIMARY KEY,
    raw_response BLOB NOT NULL
) STRICT;

-- Replies that are being written, or were.
CREATE TABLE run (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    scope TEXT NOT NULL,
    name TEXT,
    reference TEXT,
    instance TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    status TEXT NOT NULL,
    stop INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    expires INTEGER,
    sealed BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX run_name ON run (owner, scope, name) WHERE name IS NOT NULL;
CREATE UNIQUE INDEX run_reference ON run (reference) WHERE status = 'running' AND reference IS NOT NULL;
CREATE INDEX run_scope ON run (owner, scope, created);
CREATE INDEX run_running ON run (instance) WHERE status = 'running';
CREATE INDEX run_expires ON run (expires) WHERE expires IS NOT NULL;

-- When each server process was last alive.
CREATE TABLE instance (
    id TEXT PRIMARY KEY,
    seen INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Logs belong to runs. A stored response and its run have the same id.
ALTER TABLE log RENAME COLUMN node TO run;

INSERT INTO run (id, owner, scope, instance, epoch, status, created, expires, sealed)
SELECT id, owner, 'response', 'before', 1, 'running', created, expires, x'' FROM node WHERE open = 1;

INSERT INTO run (id, owner, scope, instance, epoch, status, created, expires, sealed)
SELECT id, owner, 'response', 'before', 1, 'completed', created, expires, x'' FROM node
WHERE open = 0 AND id IN (SELECT run FROM log);

-- The limit of stored bytes is for nodes outside projects.
DROP TRIGGER node_added;
DROP TRIGGER node_resized;
DROP TRIGGER node_removed;

CREATE TRIGGER node_added AFTER INSERT ON node WHEN new.project IS NULL BEGIN
    UPDATE total SET bytes = bytes + new.size;
END;

CREATE TRIGGER node_resized AFTER UPDATE OF size ON node WHEN new.project IS NULL BEGIN
    UPDATE total SET bytes = bytes + new.size - old.size;
END;

CREATE TRIGGER node_removed AFTER DELETE ON node WHEN old.project IS NULL BEGIN
    UPDATE total SET bytes = bytes - old.size;
    DELETE FROM run WHERE id = old.id;
END;

CREATE TRIGGER project_node_removed AFTER DELETE ON node WHEN old.project IS NOT NULL BEGIN
    DELETE FROM raw_response WHERE node = old.id;
END;

CREATE TRIGGER run_removed AFTER DELETE ON run BEGIN
    DELETE FROM log WHERE run = old.id;
END;
