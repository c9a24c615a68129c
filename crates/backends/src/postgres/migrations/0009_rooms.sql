-- Members that many rooms can have.
CREATE TABLE channel (
    owner TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    sealed BYTEA NOT NULL,
    PRIMARY KEY (owner, id)
);

-- Live places on a branch of a project.
CREATE TABLE room (
    id TEXT COLLATE "C" PRIMARY KEY,
    owner TEXT COLLATE "C" NOT NULL,
    project TEXT COLLATE "C" NOT NULL REFERENCES project (id) ON DELETE CASCADE,
    branch TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    version BIGINT NOT NULL,
    sealed BYTEA NOT NULL
);

CREATE INDEX room_owner ON room (owner, id);
CREATE INDEX room_project ON room (project);

-- What happened in a room, without what was only shown for a moment.
CREATE TABLE room_log (
    room TEXT COLLATE "C" NOT NULL REFERENCES room (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    name TEXT COLLATE "C",
    sealed BYTEA NOT NULL,
    PRIMARY KEY (room, number)
);

CREATE UNIQUE INDEX room_log_name ON room_log (room, name) WHERE name IS NOT NULL;

-- Calls of webhooks that have not succeeded yet. Without a time they are not tried any more.
CREATE TABLE delivery (
    id TEXT COLLATE "C" PRIMARY KEY,
    room TEXT COLLATE "C" NOT NULL REFERENCES room (id) ON DELETE CASCADE,
    attempts BIGINT NOT NULL,
    due BIGINT,
    sealed BYTEA NOT NULL
);

CREATE INDEX delivery_room ON delivery (room, id);
CREATE INDEX delivery_due ON delivery (due) WHERE due IS NOT NULL;
