//! Members of projects: the users with whom the owner shares one.

use super::project::PreviousKey;

/// A user with whom a project is shared. The owner has such a record too, once there is a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// The project.
    pub project: String,
    /// The id of the user.
    pub user: String,
    /// When the user was added, in milliseconds since 1970.
    pub created: u64,
    /// The present key of the project, sealed for this user.
    pub wrapped_key: Option<Vec<u8>>,
}

/// The next key of a sealed project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The project.
    pub project: String,
    /// The present key, and how the next one opens it. If the project has another key, nothing is
    /// written.
    pub previous: PreviousKey,
    /// The check of the next key.
    pub key_check: String,
    /// The next key, sealed for the owner and for members. A member who is not here has no key from now
    /// on. If a user is neither, nothing is written.
    pub wrapped_keys: Vec<(String, Vec<u8>)>,
}
