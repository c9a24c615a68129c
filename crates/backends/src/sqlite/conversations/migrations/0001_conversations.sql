-- Conversations: what each turn added, sealed, and what it follows.
CREATE TABLE node (
    id TEXT PRIMARY KEY,
    parent TEXT,
    owner TEXT NOT NULL,
    -- Milliseconds since 1970, here and below.
    created INTEGER NOT NULL,
    expires INTEGER,
    open INTEGER NOT NULL,
    -- Bytes that are sealed here and in the log.
    size INTEGER NOT NULL,
    sealed BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX node_created ON node (created);
CREATE INDEX node_expires ON node (expires) WHERE expires IS NOT NULL;
CREATE INDEX node_open ON node (open) WHERE open = 1;

-- Ids of things inside a node.
CREATE TABLE node_name (
    node TEXT NOT NULL REFERENCES node (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    PRIMARY KEY (name, node)
) STRICT, WITHOUT ROWID;

CREATE INDEX node_name_node ON node_name (node);

-- What stands for the newest node of a line.
CREATE TABLE reference (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    head TEXT,
    created INTEGER NOT NULL,
    sealed BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- What has arrived of a node that is being written, or was.
CREATE TABLE log (
    node TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (node, first)
) STRICT, WITHOUT ROWID;

-- How much there is, so that nobody has to count.
CREATE TABLE total (bytes INTEGER NOT NULL) STRICT;
INSERT INTO total (bytes) VALUES (0);

CREATE TRIGGER node_added AFTER INSERT ON node BEGIN
    UPDATE total SET bytes = bytes + new.size;
END;

CREATE TRIGGER node_resized AFTER UPDATE OF size ON node BEGIN
    UPDATE total SET bytes = bytes + new.size - old.size;
END;

CREATE TRIGGER node_removed AFTER DELETE ON node BEGIN
    UPDATE total SET bytes = bytes - old.size;
    DELETE FROM log WHERE node = old.id;
END;

CREATE TRIGGER log_added AFTER INSERT ON log BEGIN
    UPDATE node SET size = size + length(new.sealed) WHERE id = new.node;
END;
