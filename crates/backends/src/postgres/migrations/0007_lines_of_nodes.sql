-- Nodes of a project form lines: the first child that a node got continues its line, and every other child
-- begins one, which has its id. A path is then a few ranges of lines.
ALTER TABLE node ADD COLUMN line TEXT COLLATE "C";

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
