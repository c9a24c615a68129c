-- How many nodes of a project are before a node, and one of them that is farther away than its parent,
-- so that the node at a given depth is found in few steps.
ALTER TABLE node ADD COLUMN depth INTEGER;
ALTER TABLE node ADD COLUMN jump TEXT;

CREATE INDEX node_parent ON node (parent) WHERE project IS NOT NULL;

WITH RECURSIVE below (id, depth) AS (
    SELECT id, 0 FROM node WHERE project IS NOT NULL AND parent IS NULL UNION ALL
    SELECT node.id, below.depth + 1 FROM below JOIN node ON node.parent = below.id
    WHERE node.project IS NOT NULL
)
UPDATE node SET depth = below.depth, jump = node.parent FROM below WHERE node.id = below.id;

DROP INDEX node_parent;
