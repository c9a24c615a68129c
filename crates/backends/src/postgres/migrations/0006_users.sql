-- Users. Nobody can log in with what is stored here, or open anything with it.
CREATE TABLE account (
    id TEXT COLLATE "C" PRIMARY KEY,
    name TEXT NOT NULL,
    -- The name in the form in which it is unique.
    unique_name TEXT COLLATE "C" NOT NULL UNIQUE,
    created BIGINT NOT NULL,
    -- How the passphrase is stretched, as JSON.
    kdf TEXT NOT NULL,
    -- Salted hashes of auth keys, and the master key under the wrap key beside each.
    auth_record BYTEA NOT NULL,
    wrapped_master_key BYTEA NOT NULL,
    recovery_auth_record BYTEA NOT NULL,
    recovery_wrapped_master_key BYTEA NOT NULL,
    public_key BYTEA NOT NULL,
    wrapped_private_key BYTEA NOT NULL
);

-- Users who are logged in, by the SHA-256 of their token.
CREATE TABLE session (
    token BYTEA PRIMARY KEY,
    account TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT NOT NULL
);

CREATE INDEX session_account ON session (account);
CREATE INDEX session_expires ON session (expires);

-- Users with whom a project is shared, each with the key of the project sealed for them. The owner is
-- here too, once there is a key.
CREATE TABLE project_member (
    project TEXT COLLATE "C" NOT NULL REFERENCES project (id) ON DELETE CASCADE,
    account TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    wrapped_key BYTEA,
    PRIMARY KEY (project, account)
);

CREATE INDEX project_member_account ON project_member (account, project);
