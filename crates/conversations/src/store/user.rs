//! Users and their sessions. A store sees hashes and wrapped keys only: a thief cannot log in with what is
//! stored, and nothing of a user can be opened with it.

/// A person with a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The unique id, which owns projects. It never changes.
    pub id: String,
    /// The name as it was registered.
    pub name: String,
    /// The name in the form in which it is unique.
    pub unique_name: String,
    /// When the user was registered, in milliseconds since 1970.
    pub created: u64,
    /// How the passphrase is stretched, as JSON.
    pub kdf: String,
    /// What the passphrase opens.
    pub passphrase: Credential,
    /// What the recovery code opens.
    pub recovery: Credential,
    /// The public key, to which others seal chat keys.
    pub public_key: Vec<u8>,
    /// The private key under the master key.
    pub wrapped_private_key: Vec<u8>,
}

/// What is stored about a secret that only the user knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credential {
    /// A salted hash of the auth key.
    pub auth_record: Vec<u8>,
    /// The master key under the wrap key.
    pub wrapped_master_key: Vec<u8>,
}

/// A new passphrase of a user, and perhaps a new recovery code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialChange {
    /// The id of the user.
    pub user: String,
    /// The user must still have this credential for the passphrase. Otherwise nothing is written.
    pub from: Credential,
    /// How the new passphrase is stretched.
    pub kdf: String,
    /// What the new passphrase opens.
    pub passphrase: Credential,
    /// What the recovery code opens from now on.
    pub recovery: Credential,
    /// The only session of the user that goes on.
    pub kept_session: Option<TokenHash>,
}

/// The SHA-256 of a session's token. The token itself is only in the cookie, so a stolen database
/// gives no session.
pub type TokenHash = [u8; 32];

/// A user who is logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSession {
    /// The hash of the token.
    pub token: TokenHash,
    /// The id of the user.
    pub user: String,
    /// When the user logged in, in milliseconds since 1970.
    pub created: u64,
    /// When the session ends, in milliseconds since 1970.
    pub expires: u64,
}
