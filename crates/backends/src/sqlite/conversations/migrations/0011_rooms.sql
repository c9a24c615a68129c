-- Members that many rooms can have.
CREATE TABLE channel (
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    created INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (owner, id)
) STRICT, WITHOUT ROWID;

-- Live places on a branch of a project.
CREATE TABLE room (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    project TEXT NOT NULL,
    branch TEXT NOT NULL,
    created INTEGER NOT NULL,
    version INTEGER NOT NULL,
    sealed BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX room_owner ON room (owner, id);
CREATE INDEX room_project ON room (project);

-- What happened in a room, without what was only shown for a moment.
CREATE TABLE room_log (
    room TEXT NOT NULL,
    number INTEGER NOT NULL,
    name TEXT,
    sealed BLOB NOT NULL,
    PRIMARY KEY (room, number)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX room_log_name ON room_log (room, name) WHERE name IS NOT NULL;

-- Calls of webhooks that have not succeeded yet. Without a time they are not tried any more.
CREATE TABLE delivery (
    id TEXT PRIMARY KEY,
    room TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    due INTEGER,
    sealed BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX delivery_room ON delivery (room, id);
CREATE INDEX delivery_due ON delivery (due) WHERE due IS NOT NULL;

CREATE TRIGGER room_removed AFTER DELETE ON room BEGIN
    DELETE FROM room_log WHERE room = old.id;
    DELETE FROM delivery WHERE room = old.id;
END;

CREATE TRIGGER project_of_rooms_removed AFTER DELETE ON project BEGIN
    DELETE FROM room WHERE project = old.id;
END;
