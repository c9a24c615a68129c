-- Users. Nobody can log in with what is stored here, or open anything with it.
CREATE TABLE account (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    -- The name in the form in which it is unique.
    unique_name TEXT NOT NULL UNIQUE,
    created INTEGER NOT NULL,
    -- How the passphrase is stretched, as JSON.
    kdf TEXT NOT NULL,
    -- Salted hashes of auth keys, and the master key under the wrap key beside each.
    auth_record BLOB NOT NULL,
    wrapped_master_key BLOB NOT NULL,
    recovery_auth_record BLOB NOT NULL,
    recovery_wrapped_master_key BLOB NOT NULL,
    public_key BLOB NOT NULL,
    wrapped_private_key BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Users who are logged in, by the SHA-256 of their token.
CREATE TABLE session (
    token BLOB PRIMARY KEY,
    account TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX session_account ON session (account);
CREATE INDEX session_expires ON session (expires);

-- Users with whom a project is shared, each with the key of the project sealed for them. The owner is
-- here too, once there is a key.
CREATE TABLE project_member (
    project TEXT NOT NULL,
    account TEXT NOT NULL,
    created INTEGER NOT NULL,
    wrapped_key BLOB,
    PRIMARY KEY (project, account)
) STRICT, WITHOUT ROWID;

CREATE INDEX project_member_account ON project_member (account, project);

CREATE TRIGGER project_removed AFTER DELETE ON project BEGIN
    DELETE FROM project_member WHERE project = old.id;
END;
