//! The token of a session: 32 random bytes that only the user's browser has.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use throughline_gateway::thinking::random::{self, NoRandomness};
use zeroize::Zeroizing;

use crate::store::TokenHash;

/// Bytes of a token.
const TOKEN: usize = 32;

/// The token of a session. It is never stored and never shown.
#[derive(Clone)]
pub struct SessionToken(Zeroizing<[u8; TOKEN]>);

impl SessionToken {
    /// A new token.
    pub fn new() -> Result<Self, NoRandomness> {
        Ok(Self(Zeroizing::new(random::secret()?)))
    }

    /// Reads a token as a cookie has it. `None` if the text is not a token.
    pub fn read(text: &str) -> Option<Self> {
        let bytes = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(text).ok()?);
        Some(Self(Zeroizing::new(bytes.as_slice().try_into().ok()?)))
    }

    /// Writes it for a cookie.
    pub fn write(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE64_URL_SAFE_NO_PAD.encode(self.0.as_slice()))
    }

    /// What is stored of it. A fast hash is enough: 32 random bytes cannot be guessed.
    pub fn hash(&self) -> TokenHash {
        Sha256::digest(self.0.as_slice()).into()
    }
}

/// Shows nothing of the token.
impl fmt::Debug for SessionToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SessionToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_token_is_read_back_and_not_shown() {
        let token = SessionToken::new().expect("random bytes");
        let text = token.write();
        let read = SessionToken::read(&text).expect("a token");
        assert_eq!(read.hash(), token.hash());
        assert_ne!(SessionToken::new().expect("random bytes").hash(), token.hash());
        assert_eq!(format!("{token:?}"), "SessionToken(..)");
        for wrong in ["", "abc", &text[1..], &format!("{}A", *text), "ä"] {
            assert!(SessionToken::read(wrong).is_none(), "{wrong}");
        }
    }
}
