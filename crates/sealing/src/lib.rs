//! Authenticated encryption: keys, and what is sealed under them.
//!
//! Only the holder of a key can read, create or change sealed bytes. This crate does no I/O and draws
//! no random numbers: keys and nonces come from the caller, so that it also works in a browser.
//! `docs/sealing.md` specifies all formats of chats and users.
//!
//! What a chat holds:
//!
//! - [`secret_key`]: keys with a role, and the check that identifies them;
//! - [`envelope`]: the format of everything that is sealed for a person;
//! - [`field`]: sealed fields of a chat.
//!
//! What a user has:
//!
//! - [`user_keys`]: two keys from a passphrase ([`passphrase`]) or from a [`recovery_code`];
//! - [`wrapping`]: keys under other keys;
//! - [`sharing`]: a chat key for another user;
//! - [`auth_record`]: what the server stores to check a user's proof.
//!
//! What the server seals for itself:
//!
//! - [`keyring`]: the server's secrets, newest first, and the keys derived from them;
//! - [`keyring_backup`]: the keyring under a recovery code;
//! - [`sealed`]: sealing and opening bytes under the keyring;
//! - [`text`]: sealed bytes as text that survives both alphabets of base64.

pub mod auth_record;
pub mod envelope;
pub mod field;
pub mod keyring;
pub mod keyring_backup;
pub mod passphrase;
pub mod recovery_code;
pub mod sealed;
pub mod secret_key;
pub mod sharing;
pub mod text;
pub mod user_keys;
pub mod wrapping;

pub use auth_record::AuthRecord;
pub use envelope::{EnvelopeNonce, OpenError, is_envelope};
pub use field::FieldPath;
pub use keyring::{KeyId, Keyring, KeyringParseError, Purpose};
pub use keyring_backup::{open_keyring, seal_keyring};
pub use passphrase::{PassphraseError, PassphraseSettings};
pub use recovery_code::{RecoveryCode, RecoveryCodeError};
pub use sealed::{Nonce, SealError, key_id};
pub use secret_key::{AuthKey, ChatKey, KeyCheck, KeyParseError, MasterKey, PrivateKey, WrapKey};
pub use sharing::{PublicKey, WeakPublicKey, open_shared_key, share_key};
pub use user_keys::UserKeys;
pub use wrapping::{unwrap_key, wrap_key};
