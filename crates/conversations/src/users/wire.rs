//! The bodies of requests about users, and of their answers. All bytes are base64url.

use std::fmt;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};
use throughline_sealing::{AuthKey, PassphraseSettings};
use utoipa::ToSchema;
use zeroize::Zeroizing;

use crate::projects::problem::Problem;
use crate::store::{Credential, User, UserSession};

/// The only algorithm for passphrases.
const ARGON2ID: &str = "argon2id";
/// The bytes that a wrapped key may have. The server cannot open it, so it checks no more.
const WRAPPED_KEY: std::ops::RangeInclusive<usize> = 16..=1024;
/// Bytes of a public key.
const PUBLIC_KEY: usize = 32;

const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// An auth key as a request has it. It is erased when it is dropped, and never shown.
#[derive(Deserialize)]
#[serde(from = "String")]
pub struct Proof(Zeroizing<String>);

impl From<String> for Proof {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

/// Shows nothing of the key.
impl fmt::Debug for Proof {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Proof(..)")
    }
}

impl Proof {
    /// Reads the key.
    pub(super) fn key(&self, member: &str) -> Result<AuthKey, Problem> {
        AuthKey::read(&self.0).map_err(|error| {
            Problem::invalid(member, format!("must be 32 bytes in base64url: {error}"))
        })
    }
}

/// How a passphrase is stretched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KdfSettings {
    /// `argon2id`.
    pub algorithm: String,
    /// Memory in KiB, 65536 to 1048576.
    #[serde(rename = "memoryKiB")]
    pub memory_kib: u32,
    /// Passes over the memory, 3 to 64.
    pub iterations: u32,
    /// Lanes, 1 to 16.
    pub parallelism: u32,
    /// 16 to 64 random bytes.
    pub salt: String,
}

impl KdfSettings {
    /// The settings that clients should use, with this salt. Other settings would show that a user
    /// with this name exists.
    pub(super) fn usual(salt: &[u8]) -> Self {
        Self {
            algorithm: ARGON2ID.to_owned(),
            memory_kib: 65_536,
            iterations: 3,
            parallelism: 1,
            salt: BASE64URL.encode(salt),
        }
    }

    /// Checks the settings, and writes them for the store.
    pub(super) fn check(self) -> Result<String, Problem> {
        if self.algorithm != ARGON2ID {
            return Err(Problem::invalid("kdf.algorithm", format!("must be `{ARGON2ID}`")));
        }
        let salt = read_bytes("kdf.salt", &self.salt)?;
        PassphraseSettings::new(self.memory_kib, self.iterations, self.parallelism, &salt)
            .map_err(|error| Problem::invalid("kdf", error))?;
        let settings = Self { salt: BASE64URL.encode(salt), ..self };
        Ok(serde_json::to_string(&settings).unwrap_or_default())
    }

    /// Reads what was stored.
    pub(super) fn stored(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// The keys of a recovery code.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecoveryKeys {
    /// The auth key of the code.
    #[schema(value_type = String)]
    pub auth_key: Proof,
    /// The master key under the code's wrap key.
    pub wrapped_master_key: String,
}

/// A new user.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Registration {
    /// The name.
    pub name: String,
    /// The auth key of the passphrase.
    #[schema(value_type = String)]
    pub auth_key: Proof,
    /// How the passphrase is stretched.
    pub kdf: KdfSettings,
    /// The master key under the passphrase's wrap key.
    pub wrapped_master_key: String,
    /// The keys of the recovery code.
    pub recovery: RecoveryKeys,
    /// The public key (X25519, 32 bytes).
    pub public_key: String,
    /// The private key under the master key.
    pub wrapped_private_key: String,
}

/// A log-in.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Login {
    /// The name.
    pub name: String,
    /// The auth key of the passphrase.
    #[schema(value_type = String)]
    pub auth_key: Proof,
}

/// A new passphrase.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PassphraseChange {
    /// The auth key of the present passphrase.
    #[schema(value_type = String)]
    pub auth_key: Proof,
    /// The auth key of the new passphrase.
    #[schema(value_type = String)]
    pub new_auth_key: Proof,
    /// How the new passphrase is stretched.
    pub kdf: KdfSettings,
    /// The master key under the new passphrase's wrap key.
    pub wrapped_master_key: String,
}

/// A recovery code in place of a forgotten passphrase. Without `newAuthKey`, `kdf` and
/// `wrappedMasterKey` it changes nothing and returns the master key that is wrapped under
/// the recovery code.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Recovery {
    /// The name.
    pub name: String,
    /// The auth key of the recovery code.
    #[schema(value_type = String)]
    pub auth_key: Proof,
    /// The auth key of the new passphrase.
    #[schema(value_type = Option<String>)]
    pub new_auth_key: Option<Proof>,
    /// How the new passphrase is stretched.
    pub kdf: Option<KdfSettings>,
    /// The master key under the new passphrase's wrap key.
    pub wrapped_master_key: Option<String>,
    /// The keys of a new recovery code. Without it, the present code stays valid.
    pub recovery: Option<RecoveryKeys>,
}

/// What everybody who is logged in may know about a user.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PublicUser {
    /// The name as it was registered.
    pub name: String,
    /// The public key.
    pub public_key: String,
}

impl PublicUser {
    pub(super) fn new(user: &User) -> Self {
        Self { name: user.name.clone(), public_key: BASE64URL.encode(&user.public_key) }
    }
}

/// What a user gets who has proved a passphrase or a recovery code.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserView {
    /// The name as it was registered. Wrapped keys are bound to it.
    pub name: String,
    /// The public key.
    pub public_key: String,
    /// The private key under the master key.
    pub wrapped_private_key: String,
    /// The master key under the wrap key of what was proved.
    pub wrapped_master_key: String,
    /// How the passphrase is stretched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kdf: Option<KdfSettings>,
    /// When the session ends, in milliseconds since 1970. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

impl UserView {
    /// For a session.
    pub(super) fn of_session(user: &User, session: &UserSession) -> Self {
        Self {
            kdf: KdfSettings::stored(&user.kdf),
            expires_at: Some(session.expires),
            ..Self::opened(user, &user.passphrase)
        }
    }

    /// What one of the user's secrets opens.
    pub(super) fn opened(user: &User, credential: &Credential) -> Self {
        Self {
            name: user.name.clone(),
            public_key: BASE64URL.encode(&user.public_key),
            wrapped_private_key: BASE64URL.encode(&user.wrapped_private_key),
            wrapped_master_key: BASE64URL.encode(&credential.wrapped_master_key),
            kdf: None,
            expires_at: None,
        }
    }
}

/// Writes bytes.
pub fn write_bytes(bytes: &[u8]) -> String {
    BASE64URL.encode(bytes)
}

/// Reads bytes, with or without padding.
fn read_bytes(member: &str, text: &str) -> Result<Vec<u8>, Problem> {
    BASE64URL.decode(text).map_err(|_| Problem::invalid(member, "must be base64url"))
}

/// Reads a wrapped key.
pub fn read_wrapped_key(member: &str, text: &str) -> Result<Vec<u8>, Problem> {
    let bytes = read_bytes(member, text)?;
    if !WRAPPED_KEY.contains(&bytes.len()) {
        let (least, most) = (WRAPPED_KEY.start(), WRAPPED_KEY.end());
        return Err(Problem::invalid(member, format!("must have {least} to {most} bytes")));
    }
    Ok(bytes)
}

/// Reads a public key.
pub(super) fn read_public_key(member: &str, text: &str) -> Result<Vec<u8>, Problem> {
    let bytes = read_bytes(member, text)?;
    match bytes.len() {
        PUBLIC_KEY => Ok(bytes),
        _ => Err(Problem::invalid(member, format!("must have {PUBLIC_KEY} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_shows_nothing_of_itself() {
        let login: Login =
            serde_json::from_str(r#"{"name":"ada","authKey":"c2VjcmV0"}"#).expect("a log-in");
        assert!(!format!("{login:?}").contains("c2VjcmV0"));
    }

    #[test]
    fn weak_settings_are_refused_with_their_path() {
        let good = KdfSettings::usual(&[7; 16]);
        assert!(good.clone().check().is_ok());
        let salt = |bytes: usize| BASE64URL.encode(vec![7; bytes]);
        for (wrong, path) in [
            (KdfSettings { algorithm: "scrypt".to_owned(), ..good.clone() }, "kdf.algorithm"),
            (KdfSettings { memory_kib: 65_535, ..good.clone() }, "kdf"),
            (KdfSettings { memory_kib: 1_048_577, ..good.clone() }, "kdf"),
            (KdfSettings { iterations: 2, ..good.clone() }, "kdf"),
            (KdfSettings { iterations: 65, ..good.clone() }, "kdf"),
            (KdfSettings { parallelism: 0, ..good.clone() }, "kdf"),
            (KdfSettings { parallelism: 17, ..good.clone() }, "kdf"),
            (KdfSettings { salt: salt(15), ..good.clone() }, "kdf"),
            (KdfSettings { salt: salt(65), ..good.clone() }, "kdf"),
            (KdfSettings { salt: "+/+/".to_owned(), ..good.clone() }, "kdf.salt"),
        ] {
            let problem = wrong.clone().check().expect_err("a refusal");
            assert_eq!(problem.fault().path.as_deref(), Some(path), "{wrong:?}");
        }
    }

    #[test]
    fn keys_of_a_wrong_length_are_refused() {
        for (length, fits) in [(15, false), (16, true), (80, true), (1024, true), (1025, false)] {
            let text = write_bytes(&vec![1; length]);
            assert_eq!(read_wrapped_key("k", &text).is_ok(), fits, "{length}");
        }
        for (length, fits) in [(31, false), (32, true), (33, false)] {
            let text = write_bytes(&vec![1; length]);
            assert_eq!(read_public_key("k", &text).is_ok(), fits, "{length}");
            assert_eq!(Proof::from(text).key("k").is_ok(), fits, "{length}");
        }
    }
}
