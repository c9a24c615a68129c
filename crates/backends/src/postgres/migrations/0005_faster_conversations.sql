-- Who adds to a log locks its runs, all with one statement. A check of each row is not needed.
ALTER TABLE log DROP CONSTRAINT log_run_fkey;

CREATE FUNCTION remove_log_of_run() RETURNS trigger LANGUAGE plpgsql AS '
BEGIN
    DELETE FROM log WHERE run = old.id;
    RETURN NULL;
END';

CREATE TRIGGER run_removed AFTER DELETE ON run FOR EACH ROW EXECUTE FUNCTION remove_log_of_run();

-- Counts all rows of a statement together. Most runs have no node of their id. The array makes
-- Postgres look these few nodes up, however many nodes there are.
DROP TRIGGER log_added ON log;

CREATE OR REPLACE FUNCTION count_log() RETURNS trigger LANGUAGE plpgsql AS '
BEGIN
    UPDATE node SET size = node.size + added.bytes
    FROM (SELECT run, sum(length(sealed)) AS bytes FROM changed GROUP BY run) AS added
    WHERE node.id = added.run AND node.id = ANY (ARRAY(SELECT run FROM changed));
    RETURN NULL;
END';

CREATE TRIGGER log_added AFTER INSERT ON log
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_log();

-- How many nodes of a project are before a node, and one of them that is farther away than its parent,
-- so that the node at a given depth is found in few steps.
ALTER TABLE node ADD COLUMN depth BIGINT;
ALTER TABLE node ADD COLUMN jump TEXT COLLATE "C";

WITH RECURSIVE below (id, depth) AS (
    SELECT id, 0::bigint FROM node WHERE project IS NOT NULL AND parent IS NULL UNION ALL
    SELECT node.id, below.depth + 1 FROM below JOIN node ON node.parent = below.id
)
UPDATE node SET depth = below.depth, jump = node.parent FROM below WHERE node.id = below.id;
