//! Seals what a project stores. Each field of each node has a key of its own, which is derived from the
//! key of its chat; `docs/sealing.md` specifies the format.
//!
//! The key of a *managed* project comes from the server's keyring. The key of a *sealed* project comes
//! from its owner, with each request or as a lease, and is never stored.

use std::borrow::Cow;
use std::fmt;
use std::future::pending;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use throughline_gateway::thinking::random;
use throughline_gateway::thinking::store::StoreError;
use throughline_sealing::{
    ChatKey, FieldPath, KeyCheck, Keyring, OpenError, envelope, is_envelope, unwrap_key,
};
use tokio::sync::watch;

use crate::sealed_store::{InvalidContent, SealedKind, open_with_keyring, unreadable};
use crate::store::{PreviousKey, SealedUnder};

/// The bytes with which the sealed fields of a row begin: two letters and a version.
const MAGIC: [u8; 3] = *b"TF\x01";

/// A field of a project, of one of its nodes, or of the log of one of its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The title of the project.
    Title,
    /// The settings of the project, as JSON.
    Project,
    /// Everything that the server knows about a node, as JSON.
    Node,
    /// The text of a node.
    Content,
    /// The blocks of a node, as JSON.
    ContentBlocks,
    /// The provider's reply, compressed.
    RawResponse,
    /// The text of all thinking of a node.
    ThinkingContent,
    /// The signatures of all thinking of a node, as a JSON list.
    ThinkingSignature,
    /// Entries of the log of a run, by the number of the first.
    Log(u64),
    /// An entry of the log of a room, by its number.
    RoomEvent(u64),
    /// A call of a webhook of a room.
    Delivery,
    /// A member of a message for other programs, by its name and the number of its entry.
    Stream(&'static str, u64),
}

impl Field {
    /// The name that keys are derived from. It must never change.
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Title => "title",
            Self::Project => "project",
            Self::Node => "node",
            Self::Content => "content",
            Self::ContentBlocks => "content_blocks",
            Self::RawResponse => "raw_response",
            Self::ThinkingContent => "thinking_content",
            Self::ThinkingSignature => "thinking_signature",
            Self::Delivery => "delivery",
            Self::Log(first) => return Cow::Owned(format!("log {first}")),
            Self::RoomEvent(number) => return Cow::Owned(format!("room {number}")),
            Self::Stream(member, number) => {
                return Cow::Owned(format!("stream {member} {number}"));
            }
        })
    }

    /// What it was called before projects had keys of their own.
    fn older_kind(self) -> Option<SealedKind> {
        match self {
            Self::Project => Some(SealedKind::Project),
            Self::Node => Some(SealedKind::Node),
            Self::RawResponse => Some(SealedKind::Raw),
            Self::Log(first) => Some(SealedKind::Log(first)),
            _ => None,
        }
    }
}

/// Seals and opens the fields of one project.
#[derive(Clone)]
pub struct ChatSeal {
    /// The id of the project.
    chat: String,
    /// Newest first. The first one seals.
    keys: Vec<ChatKey>,
    /// Opens what earlier versions sealed, in managed projects.
    keyring: Option<Arc<Keyring>>,
    /// Becomes true when the lease that the key comes from is revoked.
    revoked: Option<watch::Receiver<bool>>,
}

impl ChatSeal {
    /// The seal of a managed project.
    pub fn managed(keyring: &Arc<Keyring>, chat: &str) -> Self {
        let keys = keyring.chat_keys(chat).collect();
        Self { chat: chat.to_owned(), keys, keyring: Some(keyring.clone()), revoked: None }
    }

    /// The seal of a sealed project. `previous` are the keys before this one, newest first, each
    /// wrapped under the key after it.
    pub fn sealed(
        chat: &str,
        key: ChatKey,
        previous: &[PreviousKey],
        revoked: Option<watch::Receiver<bool>>,
    ) -> Result<Self, OpenError> {
        let mut keys = vec![key];
        for older in previous {
            let wrapped = older.wrapped().ok_or(OpenError::Altered)?;
            let newest = keys.last().ok_or(OpenError::Altered)?;
            let opened = unwrap_key(&wrapped, newest, chat)?;
            keys.push(opened);
        }
        Ok(Self { chat: chat.to_owned(), keys, keyring: None, revoked })
    }

    /// Opens fields of a sealed project with any of these keys. It cannot seal: there may be none.
    pub(crate) fn for_reading(chat: &str, keys: Vec<ChatKey>) -> Self {
        Self { chat: chat.to_owned(), keys, keyring: None, revoked: None }
    }

    /// The key with this check.
    pub(crate) fn key(&self, check: KeyCheck) -> Option<&ChatKey> {
        self.keys.iter().find(|key| key.key_check() == check)
    }

    /// Whether the key belongs to the client. Then each field is stored so that the client can open it.
    pub fn is_clients(&self) -> bool {
        self.keyring.is_none()
    }

    /// What a commit with contents of this seal depends on. `None` if the server has the key.
    pub(crate) fn sealed_under(&self) -> Option<SealedUnder> {
        let key_check = self.present_key()?.to_string();
        Some(SealedUnder { project: self.chat.clone(), key_check })
    }

    /// The check of the client's key that seals.
    pub(crate) fn present_key(&self) -> Option<KeyCheck> {
        self.keys.first().filter(|_| self.is_clients()).map(ChatKey::key_check)
    }

    /// Waits until the key may not be used any more.
    pub async fn revoked(&self) {
        match self.revoked.clone() {
            Some(mut revoked) => {
                // A lease that expires drops its sender. A run that has begun may still end.
                if revoked.wait_for(|revoked| *revoked).await.is_err() {
                    pending::<()>().await;
                }
            }
            None => pending().await,
        }
    }

    /// Seals a field. `node` is the id of its node or run; it is empty for fields of the project.
    pub fn seal(&self, field: Field, node: &str, bytes: &[u8]) -> Vec<u8> {
        let (nonce, name) = (random::envelope_nonce(), field.name());
        self.keys[0].seal(self.path(&name, node), &nonce, bytes)
    }

    /// Seals a field as JSON.
    pub fn seal_json(&self, field: Field, node: &str, what: &impl Serialize) -> Vec<u8> {
        self.seal(field, node, &serde_json::to_vec(what).unwrap_or_default())
    }

    /// Opens a field.
    pub fn open(&self, field: Field, node: &str, sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
        let id = if node.is_empty() { &self.chat } else { node };
        if let (false, Some(keyring), Some(kind)) =
            (is_envelope(sealed), &self.keyring, field.older_kind())
        {
            return open_with_keyring(keyring, kind, id, sealed);
        }
        let opened = envelope::key_id(sealed).and_then(|key_id| {
            let key = self.key(key_id).ok_or(OpenError::WrongKey(key_id))?;
            key.open(self.path(&field.name(), node), sealed)
        });
        opened.map_err(|cause| unreadable(id, cause.into()))
    }

    /// Opens a field that holds JSON.
    pub fn open_json<T: DeserializeOwned>(
        &self,
        field: Field,
        node: &str,
        sealed: &[u8],
    ) -> Result<T, StoreError> {
        let bytes = self.open(field, node, sealed)?;
        let read = serde_json::from_slice(&bytes);
        read.map_err(|cause| {
            let id = if node.is_empty() { &self.chat } else { node };
            unreadable(id, InvalidContent::new(&field.name(), &cause).into())
        })
    }

    fn path<'a>(&'a self, field: &'a str, node: &'a str) -> FieldPath<'a> {
        FieldPath { chat: &self.chat, node, field }
    }
}

/// Shows no key.
impl fmt::Debug for ChatSeal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ChatSeal").field("chat", &self.chat).finish_non_exhaustive()
    }
}

/// The sealed fields of one row, by name. Each can be taken out without a key.
///
/// As bytes: `TF` and the version 1, then for each field the length of its name (one byte), its name, the length of
/// its envelope (four bytes, the highest first), its envelope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealedFields<'a>(Vec<(Cow<'a, str>, Cow<'a, [u8]>)>);

impl<'a> SealedFields<'a> {
    /// Adds a field.
    #[must_use]
    pub fn with(mut self, field: Field, envelope: Vec<u8>) -> Self {
        self.0.push((field.name(), envelope.into()));
        self
    }

    /// The envelope of a field.
    pub fn get(&self, field: Field) -> Option<&[u8]> {
        let name = field.name();
        self.0.iter().find(|(known, _)| *known == name).map(|(_, envelope)| &**envelope)
    }

    /// The names of all fields.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }

    /// The beginning of the first envelope, from the first bytes of a row.
    pub(crate) fn first_envelope(bytes: &[u8]) -> Option<&[u8]> {
        let (length, rest) = bytes.strip_prefix(&MAGIC)?.split_first()?;
        rest.get(usize::from(*length) + size_of::<u32>()..)
    }

    /// Writes the fields.
    pub fn write(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for (name, envelope) in &self.0 {
            // Names are short, and envelopes are shorter than the largest body.
            out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(&u32::try_from(envelope.len()).unwrap_or(u32::MAX).to_be_bytes());
            out.extend_from_slice(envelope);
        }
        out
    }

    /// Reads fields. `None` if the bytes are something else, or damaged.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&MAGIC)?;
        let mut fields = Vec::new();
        while let Some((length, after)) = rest.split_first() {
            let (name, after) = after.split_at_checked(usize::from(*length))?;
            let (length, after) = after.split_first_chunk::<4>()?;
            let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
            let (envelope, after) = after.split_at_checked(length)?;
            fields.push((Cow::Borrowed(std::str::from_utf8(name).ok()?), envelope.into()));
            rest = after;
        }
        Some(Self(fields))
    }
}

#[cfg(test)]
mod tests {
    use throughline_sealing::{Purpose, wrap_key};

    use super::*;
    use crate::projects::content::NodeContent;

    fn sealed(chat: &str, key: u8) -> ChatSeal {
        ChatSeal::sealed(chat, ChatKey::new([key; 32]), &[], None).unwrap()
    }

    fn cause(error: &StoreError) -> Option<&OpenError> {
        error.cause.downcast_ref()
    }

    /// Covers: case 46, X-15, S0-60
    #[test]
    fn moved_fields_do_not_open() {
        let seal = sealed("p1", 1);
        let envelope = seal.seal(Field::Content, "n1", b"text");
        assert_eq!(seal.open(Field::Content, "n1", &envelope).unwrap(), b"text");
        for (seal, field, node) in [
            (&seal, Field::Content, "n2"),
            (&seal, Field::ThinkingContent, "n1"),
            (&sealed("p2", 1), Field::Content, "n1"),
        ] {
            let error = seal.open(field, node, &envelope).unwrap_err();
            assert_eq!(cause(&error), Some(&OpenError::Altered));
        }
        let error = sealed("p1", 2).open(Field::Content, "n1", &envelope).unwrap_err();
        assert!(matches!(cause(&error), Some(OpenError::WrongKey(_))), "{error:?}");
        let same_text = seal.seal(Field::Content, "n1", b"text");
        assert_ne!(envelope, same_text, "each envelope has its own nonce");
    }

    #[test]
    fn managed_project_opens_what_earlier_versions_sealed() {
        let keyring = Arc::new(Keyring::new([3; 32]));
        let seal = ChatSeal::managed(&keyring, "p1");
        let old = keyring.seal(Purpose::Conversation, &[9; 24], b"node n1", b"{}");
        assert_eq!(seal.open(Field::Node, "n1", &old).unwrap(), b"{}");
        let new = seal.seal(Field::Node, "n1", b"{}");
        assert!(is_envelope(&new) && !is_envelope(&old));
        assert!(sealed("p1", 1).open(Field::Node, "n1", &old).is_err());
    }

    ///
    #[test]
    fn error_about_content_does_not_quote_it() {
        let seal = sealed("p1", 1);
        for text in ["{\"blocks\": \"secretmark\"}", "\"secretmark\"", "{\"secretmark"] {
            let envelope = seal.seal(Field::Node, "n1", text.as_bytes());
            let opened = seal.open_json::<NodeContent>(Field::Node, "n1", &envelope);
            let error = opened.expect_err("not a node");
            let shown = format!("{error} {error:?} {} {:?}", error.cause, error.cause);
            assert!(!shown.contains("secretmark"), "{shown}");
            assert!(shown.contains("`node`") && shown.contains("line 1, column"), "{shown}");
        }
    }

    ///
    #[test]
    fn newest_key_opens_what_earlier_keys_sealed() {
        let [one, two, three] = [1, 2, 3].map(|key| ChatKey::new([key; 32]));
        let envelope = sealed("p1", 1).seal(Field::Content, "n1", b"text");
        let previous = |key: &ChatKey, under: &ChatKey| {
            PreviousKey::new(key.key_check(), &wrap_key(key, under, "p1", &[7; 12]))
        };
        let chain = [previous(&two, &three), previous(&one, &two)];
        let seal = ChatSeal::sealed("p1", three.clone(), &chain, None).unwrap();
        assert_eq!(seal.open(Field::Content, "n1", &envelope).unwrap(), b"text");
        // Who has an older key cannot open what a later one sealed.
        let later = seal.seal(Field::Content, "n2", b"later");
        assert!(sealed("p1", 1).open(Field::Content, "n2", &later).is_err());
        let wrong = ChatSeal::sealed("p1", two, &chain, None);
        assert!(matches!(wrong, Err(OpenError::WrongKey(_))));
    }

    #[test]
    fn fields_of_a_row_are_read_without_a_key() {
        let fields = SealedFields::default()
            .with(Field::Node, vec![1, 2, 3])
            .with(Field::Content, Vec::new());
        let written = fields.write();
        let read = SealedFields::read(&written).unwrap();
        assert_eq!(read, fields);
        assert_eq!(read.get(Field::Node), Some(&[1, 2, 3][..]));
        assert_eq!(read.get(Field::Title), None);
        for length in 0..written.len() {
            let cut = SealedFields::read(&written[..length]);
            let is_border = [3, 3 + 1 + 4 + 4 + 3].contains(&length);
            assert_eq!(cut.is_some(), is_border, "{length}");
        }
    }
}
