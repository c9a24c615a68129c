//! Secret keys of 32 bytes, each with a role that the type shows. A key with one role cannot be used
//! in another one by mistake.

use std::fmt;
use std::marker::PhantomData;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::keyring::SECRET;

/// Bytes of a key check.
pub const KEY_CHECK: usize = 16;

/// The text whose HMAC is the key check. It must never change: stored key checks come from it.
const KEY_CHECK_TEXT: &[u8] = b"throughline key check";

const NO_PADDING: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_encode_padding(false)
    .with_decode_padding_mode(DecodePaddingMode::Indifferent);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, NO_PADDING);

/// The roles of keys. None of them has a value: they only mark the type of a key.
pub mod role {
    use std::fmt::Debug;

    /// What a key is for.
    pub trait Role: Debug {
        /// The name of the key, for its `Debug` output.
        const NAME: &'static str;
    }

    macro_rules! roles {
        ($($(#[doc = $doc:literal])* $role:ident $name:literal)*) => {$(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug)]
            pub enum $role {}

            impl Role for $role {
                const NAME: &'static str = $name;
            }
        )*};
    }

    roles! {
        /// Seals the fields of one chat.
        Chat "ChatKey"
        /// A user's own random key. It wraps all other keys of the user.
        Master "MasterKey"
        /// Comes from a passphrase or a recovery code. It wraps the master key.
        Wrap "WrapKey"
        /// Comes from a passphrase or a recovery code. It is sent to the server as a proof.
        Auth "AuthKey"
        /// The private half of a user's X25519 key pair. It opens chat keys that others share.
        Private "PrivateKey"
    }
}

use role::Role;

/// Seals the fields of one chat.
pub type ChatKey = SecretKey<role::Chat>;
/// A user's own random key. It wraps all other keys of the user.
pub type MasterKey = SecretKey<role::Master>;
/// Wraps the master key.
pub type WrapKey = SecretKey<role::Wrap>;
/// Proves to the server that a user knows the passphrase.
pub type AuthKey = SecretKey<role::Auth>;
/// Opens chat keys that others share.
pub type PrivateKey = SecretKey<role::Private>;

/// A secret key. It is erased from memory when it is dropped, compared in constant time, and never
/// shown.
pub struct SecretKey<R> {
    bytes: Zeroizing<[u8; SECRET]>,
    /// Opening a field compares it first, so it is computed once.
    check: KeyCheck,
    role: PhantomData<fn() -> R>,
}

impl<R: Role> SecretKey<R> {
    /// A key of these bytes. They must come from a secure random source or from a derivation.
    pub fn new(bytes: [u8; SECRET]) -> Self {
        Self::from_zeroizing(Zeroizing::new(bytes))
    }

    pub(crate) fn from_zeroizing(bytes: Zeroizing<[u8; SECRET]>) -> Self {
        let check = KeyCheck::of(&bytes);
        Self { bytes, check, role: PhantomData }
    }

    /// Reads a key in base64url, with or without padding.
    pub fn read(text: &str) -> Result<Self, KeyParseError> {
        Ok(Self::from_zeroizing(read_base64url(text)?))
    }

    /// Writes the key in base64url, as [`SecretKey::read`] reads it.
    pub fn write(&self) -> Zeroizing<String> {
        Zeroizing::new(URL_SAFE.encode(self.bytes.as_slice()))
    }

    /// Identifies the key and reveals nothing about it. Envelopes carry it as their key id.
    pub fn key_check(&self) -> KeyCheck {
        self.check
    }

    /// The key itself. It must not reach a log or a store.
    pub fn expose(&self) -> &[u8; SECRET] {
        &self.bytes
    }
}

impl<R> Clone for SecretKey<R> {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes.clone(), check: self.check, role: PhantomData }
    }
}

/// In constant time: how long it takes does not show how many bytes are equal.
impl<R> PartialEq for SecretKey<R> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes.as_slice().ct_eq(other.bytes.as_slice()).into()
    }
}

impl<R> Eq for SecretKey<R> {}

/// Shows the role and nothing of the key.
impl<R: Role> fmt::Debug for SecretKey<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}(..)", R::NAME)
    }
}

/// Why a text is not a key or a key check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyParseError {
    /// Not in the alphabet of base64url.
    #[error("not base64url")]
    Encoding,
    /// Too short or too long.
    #[error("{actual} bytes instead of {expected}")]
    Length {
        /// The bytes that are needed.
        expected: usize,
        /// The bytes that the text has.
        actual: usize,
    },
}

/// The first 16 bytes of HMAC-SHA256(key, "throughline key check"). It is public: envelopes and
/// projects carry it, so that a wrong key is noticed before anything is opened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyCheck([u8; KEY_CHECK]);

impl KeyCheck {
    /// The check with these bytes, as an envelope carries it.
    pub fn new(bytes: [u8; KEY_CHECK]) -> Self {
        Self(bytes)
    }

    /// Reads a check in base64url, with or without padding.
    pub fn read(text: &str) -> Result<Self, KeyParseError> {
        Ok(Self(*read_base64url::<KEY_CHECK>(text)?))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; KEY_CHECK] {
        &self.0
    }

    fn of(key: &[u8; SECRET]) -> Self {
        // HMAC itself fills a short key with zeros to the length of a block.
        let mut block = Zeroizing::new([0; 64]);
        block[..SECRET].copy_from_slice(key);
        let mut mac = Hmac::<Sha256>::new((&*block).into());
        mac.update(KEY_CHECK_TEXT);
        Self::first_bytes(&mac.finalize().into_bytes().into())
    }

    pub(crate) fn first_bytes(hash: &[u8; 32]) -> Self {
        let mut bytes = [0; KEY_CHECK];
        bytes.copy_from_slice(&hash[..KEY_CHECK]);
        Self(bytes)
    }
}

/// In base64url, as the API writes it.
impl fmt::Display for KeyCheck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&URL_SAFE.encode(self.0))
    }
}

impl fmt::Debug for KeyCheck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeyCheck({self})")
    }
}

fn read_base64url<const N: usize>(text: &str) -> Result<Zeroizing<[u8; N]>, KeyParseError> {
    let bytes = Zeroizing::new(URL_SAFE.decode(text).map_err(|_| KeyParseError::Encoding)?);
    let length = KeyParseError::Length { expected: N, actual: bytes.len() };
    bytes.as_slice().try_into().map(Zeroizing::new).map_err(|_| length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_shows_nothing_of_itself() {
        let key = ChatKey::new([7; SECRET]);
        assert_eq!(format!("{key:?}"), "ChatKey(..)");
        assert_eq!(format!("{:?}", MasterKey::new([7; SECRET])), "MasterKey(..)");
        assert_eq!(key, key.clone());
        assert_ne!(key, ChatKey::new([8; SECRET]));
    }

    /// RFC 4231 has no case for this text, so the value was computed with OpenSSL:
    /// `printf 'throughline key check' | openssl dgst -sha256 -mac HMAC -macopt hexkey:0707...`
    #[test]
    fn key_check_is_the_start_of_an_hmac() {
        let check = ChatKey::new([7; SECRET]).key_check();
        let hex: String = check.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "89378789503775d8e0b4f02a18dabc1f");
    }

    #[test]
    fn written_key_is_read_back_and_other_text_is_not() {
        let key = ChatKey::new([0xfb; SECRET]);
        assert_eq!(*key.write(), "-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_s");
        assert_eq!(ChatKey::read(&key.write()), Ok(key.clone()));
        assert_eq!(ChatKey::read(&format!("{}=", *key.write())), Ok(key.clone()));
        let check = key.key_check();
        assert_eq!(KeyCheck::read(&check.to_string()), Ok(check));
        for (text, error) in [
            ("+/v7", KeyParseError::Encoding),
            ("ä", KeyParseError::Encoding),
            ("", KeyParseError::Length { expected: 32, actual: 0 }),
            (&check.to_string(), KeyParseError::Length { expected: 32, actual: 16 }),
        ] {
            assert_eq!(ChatKey::read(text), Err(error), "{text}");
        }
    }
}
