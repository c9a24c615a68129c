//! Authenticated encryption under a keyring.
//!
//! Only the holder of a key can read, create or change sealed bytes. This crate does no I/O and draws
//! no random numbers: keys and nonces come from the caller, so that it also works in a browser.
//!
//! - [`keyring`]: the keys, newest first, and the keys derived from them;
//! - [`sealed`]: sealing and opening bytes;
//! - [`text`]: sealed bytes as text that survives both alphabets of base64.

pub mod keyring;
pub mod sealed;
pub mod text;

pub use keyring::{KeyId, Keyring, KeyringParseError, Purpose};
pub use sealed::{Nonce, SealError, key_id};
