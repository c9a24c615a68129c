-- References that were made before they could expire, and stand at no node, got the time that is usual. How
-- long the operator keeps them is not known here, and may be longer; a year is longer than most.
UPDATE reference SET expires = created + 365 * 86400000
WHERE expires = created + 30 * 86400000
    AND (head IS NULL OR head NOT IN (SELECT id FROM node));
