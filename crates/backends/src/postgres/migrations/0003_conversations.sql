-- Conversations: what each turn added, sealed, and what it follows. Ids are compared byte by byte.
CREATE TABLE project (
    id TEXT COLLATE "C" PRIMARY KEY,
    owner TEXT NOT NULL,
    -- Milliseconds since 1970, here and below.
    created BIGINT NOT NULL,
    deleted BIGINT,
    -- JSON that needs no key, here and below.
    facts TEXT NOT NULL,
    sealed BYTEA NOT NULL
);

CREATE INDEX project_owner ON project (owner, id);

CREATE TABLE node (
    id TEXT COLLATE "C" PRIMARY KEY,
    parent TEXT COLLATE "C",
    owner TEXT NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT,
    open BIGINT NOT NULL,
    -- Bytes that are sealed here and in the log.
    size BIGINT NOT NULL,
    sealed BYTEA NOT NULL,
    project TEXT COLLATE "C",
    facts TEXT,
    has_thinking BIGINT NOT NULL DEFAULT 0,
    thinking_token_count BIGINT,
    encrypted_thinking_content BYTEA,
    encrypted_thinking_signature BYTEA
);

-- What is sealed does not get smaller by compression.
ALTER TABLE node ALTER COLUMN sealed SET STORAGE EXTERNAL;
ALTER TABLE node ALTER COLUMN encrypted_thinking_content SET STORAGE EXTERNAL;
ALTER TABLE node ALTER COLUMN encrypted_thinking_signature SET STORAGE EXTERNAL;

CREATE INDEX node_created ON node (created, id) WHERE project IS NULL;
CREATE INDEX node_expires ON node (expires) WHERE expires IS NOT NULL;
CREATE INDEX node_project ON node (project, id) WHERE project IS NOT NULL;

-- Ids of things inside a node.
CREATE TABLE node_name (
    node TEXT COLLATE "C" NOT NULL REFERENCES node (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    PRIMARY KEY (name, node)
);

CREATE INDEX node_name_node ON node_name (node);

-- The providers' replies as they were captured. A table of its own, so that reading nodes stays fast.
CREATE TABLE raw_response (
    node TEXT COLLATE "C" PRIMARY KEY REFERENCES node (id) ON DELETE CASCADE,
    raw_response BYTEA NOT NULL
);

ALTER TABLE raw_response ALTER COLUMN raw_response SET STORAGE EXTERNAL;

-- What stands for the newest node of a line.
CREATE TABLE reference (
    id TEXT COLLATE "C" PRIMARY KEY,
    owner TEXT NOT NULL,
    head TEXT COLLATE "C",
    created BIGINT NOT NULL,
    expires BIGINT,
    sealed BYTEA NOT NULL,
    project TEXT COLLATE "C",
    name TEXT,
    facts TEXT
);

CREATE INDEX reference_expires ON reference (expires) WHERE expires IS NOT NULL;
CREATE UNIQUE INDEX reference_name ON reference (project, name) WHERE project IS NOT NULL;

-- Replies that are being written, or were.
CREATE TABLE run (
    id TEXT COLLATE "C" PRIMARY KEY,
    owner TEXT NOT NULL,
    scope TEXT NOT NULL,
    name TEXT,
    reference TEXT COLLATE "C",
    instance TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    status TEXT NOT NULL,
    stop BIGINT NOT NULL DEFAULT 0,
    created BIGINT NOT NULL,
    expires BIGINT,
    sealed BYTEA NOT NULL
);

CREATE UNIQUE INDEX run_name ON run (owner, scope, name) WHERE name IS NOT NULL;
CREATE UNIQUE INDEX run_reference ON run (reference) WHERE status = 'running' AND reference IS NOT NULL;
CREATE INDEX run_scope ON run (owner, scope, created);
CREATE INDEX run_running ON run (instance) WHERE status = 'running';
CREATE INDEX run_expires ON run (expires) WHERE expires IS NOT NULL;

-- What has arrived of a run.
CREATE TABLE log (
    run TEXT COLLATE "C" NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    first BIGINT NOT NULL,
    last BIGINT NOT NULL,
    sealed BYTEA NOT NULL,
    PRIMARY KEY (run, first)
);

-- When each server process was last alive.
CREATE TABLE instance (
    id TEXT PRIMARY KEY,
    seen BIGINT NOT NULL
);

-- The limit of stored bytes is for nodes outside projects. One row with the sum would make all
-- instances wait for each other.
CREATE INDEX node_size ON node (size) WHERE project IS NULL;
CREATE VIEW total AS
SELECT coalesce(sum(size), 0)::bigint AS bytes FROM node WHERE project IS NULL;

-- A stored response and its run have the same id.
CREATE FUNCTION count_log() RETURNS trigger LANGUAGE plpgsql AS '
BEGIN
    UPDATE node SET size = size + length(new.sealed) WHERE id = new.run;
    RETURN NULL;
END';

CREATE TRIGGER log_added AFTER INSERT ON log FOR EACH ROW EXECUTE FUNCTION count_log();

CREATE FUNCTION remove_run_of_node() RETURNS trigger LANGUAGE plpgsql AS '
BEGIN
    DELETE FROM run WHERE id = old.id;
    RETURN NULL;
END';

CREATE TRIGGER node_removed AFTER DELETE ON node FOR EACH ROW WHEN (old.project IS NULL)
EXECUTE FUNCTION remove_run_of_node();
