//! Keys, and what is sealed under them.
//!
//! What is sealed can be read by whoever has the key, and nobody else can make or alter it. No I/O
//! lives here, nor dice: keys and nonces come from the caller, so that this also works in a browser.
//!
//! - [`keyring`]: the keys, the newest first, and keys derived from them;
//! - [`sealed`]: bytes under a key;
//! - [`text`]: sealed bytes as text that survives either alphabet of base64.

pub mod keyring;
pub mod sealed;
pub mod text;

pub use keyring::{Keyring, KeyringError, Purpose};
pub use sealed::{Nonce, SealError};
