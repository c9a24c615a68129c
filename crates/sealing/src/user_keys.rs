//! The two keys that come from a user's passphrase or recovery code. The server gets one of them and
//! cannot compute the other.

use crate::envelope::{self, push_part};
use crate::secret_key::{AuthKey, SecretKey, WrapKey, role::Role};

const AUTH_LABEL: &[u8] = b"throughline auth key v1";
const WRAP_LABEL: &[u8] = b"throughline wrap key v1";

/// The keys of a user that a passphrase or a recovery code gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserKeys {
    /// Sent to the server, as a proof.
    pub auth: AuthKey,
    /// Stays with the user, and wraps the master key.
    pub wrap: WrapKey,
}

impl UserKeys {
    /// Derives both keys from a root: the output of Argon2id, or the bytes of a recovery code.
    pub(crate) fn derive(root: &[u8]) -> Self {
        Self { auth: derive(root, AUTH_LABEL), wrap: derive(root, WRAP_LABEL) }
    }
}

fn derive<R: Role>(root: &[u8], label: &[u8]) -> SecretKey<R> {
    let mut info = Vec::new();
    push_part(&mut info, label);
    SecretKey::from_zeroizing(envelope::derive(root, &info))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_keys_differ_from_each_other_and_from_the_root() {
        let keys = UserKeys::derive(&[7; 32]);
        assert_ne!(keys.auth.expose(), keys.wrap.expose());
        assert_ne!(keys.auth.expose(), &[7; 32]);
        assert_ne!(keys.wrap.expose(), &[7; 32]);
        assert_ne!(keys, UserKeys::derive(&[8; 32]));
    }
}
