-- Large rows make a slow table WITHOUT ROWID: its inner pages hold whole rows. So the table of nodes gets row
-- numbers, with the small columns first. Nodes of a project form lines: the first child that a node got
-- continues its line, and every other child begins one, which has its id. A path is then a few ranges of lines.
DROP TRIGGER node_added;
DROP TRIGGER node_resized;
DROP TRIGGER node_removed;
DROP TRIGGER project_node_removed;
DROP TRIGGER log_added;

ALTER TABLE node RENAME TO old_node;

CREATE TABLE node (
    id TEXT PRIMARY KEY NOT NULL,
    parent TEXT,
    owner TEXT NOT NULL,
    -- Milliseconds since 1970, here and below.
    created INTEGER NOT NULL,
    expires INTEGER,
    open INTEGER NOT NULL,
    -- Bytes that are sealed here and in the log.
    size INTEGER NOT NULL,
    project TEXT,
    -- How many nodes of the project are before it.
    depth INTEGER,
    -- One of them that is farther away than its parent.
    jump TEXT,
    line TEXT,
    has_thinking INTEGER NOT NULL DEFAULT 0,
    thinking_token_count INTEGER,
    facts TEXT,
    sealed BLOB NOT NULL,
    encrypted_thinking_content BLOB,
    encrypted_thinking_signature BLOB
) STRICT;

INSERT INTO node (id, parent, owner, created, expires, open, size, project, depth, jump, has_thinking,
    thinking_token_count, facts, sealed, encrypted_thinking_content, encrypted_thinking_signature)
SELECT id, parent, owner, created, expires, open, size, project, depth, jump, has_thinking,
    thinking_token_count, facts, sealed, encrypted_thinking_content, encrypted_thinking_signature
FROM old_node ORDER BY project, id;

-- Its rows would be removed together with the old nodes.
CREATE TABLE new_node_name (
    node TEXT NOT NULL REFERENCES node (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    PRIMARY KEY (name, node)
) STRICT, WITHOUT ROWID;

INSERT INTO new_node_name (node, name) SELECT node, name FROM node_name;
DROP TABLE node_name;
ALTER TABLE new_node_name RENAME TO node_name;
DROP TABLE old_node;

CREATE INDEX node_name_node ON node_name (node);
CREATE INDEX node_created ON node (created);
CREATE INDEX node_expires ON node (expires) WHERE expires IS NOT NULL;
CREATE INDEX node_open ON node (open) WHERE open = 1;
CREATE INDEX node_project ON node (project, id) WHERE project IS NOT NULL;

CREATE INDEX node_parent ON node (parent, id) WHERE project IS NOT NULL;

WITH RECURSIVE below (id, line) AS (
    SELECT id, id FROM node WHERE project IS NOT NULL AND depth = 0 UNION ALL
    SELECT node.id, CASE WHEN node.id = (
        SELECT min(child.id) FROM node AS child
        WHERE child.parent = below.id AND child.project IS NOT NULL
    ) THEN below.line ELSE node.id END
    FROM below JOIN node ON node.parent = below.id WHERE node.project IS NOT NULL
)
UPDATE node SET line = below.line FROM below WHERE node.id = below.id;

DROP INDEX node_parent;

CREATE UNIQUE INDEX node_line ON node (line, depth) WHERE line IS NOT NULL;

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

CREATE TRIGGER log_added AFTER INSERT ON log BEGIN
    UPDATE node SET size = size + length(new.sealed) WHERE id = new.run;
END;
