-- References are forgotten when nothing has moved them on for long enough. Those that were made before
-- live as long as the node they stand at, or as long as is usual.
ALTER TABLE reference ADD COLUMN expires INTEGER;

UPDATE reference SET expires = CASE
    WHEN head IN (SELECT id FROM node) THEN (SELECT expires FROM node WHERE id = head)
    ELSE created + 30 * 86400000
END;

CREATE INDEX reference_expires ON reference (expires) WHERE expires IS NOT NULL;
