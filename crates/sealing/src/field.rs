//! Sealed fields of a chat: the text of a message, its thinking, its signature, a title.

use crate::envelope::{self, Binding, Envelope, EnvelopeNonce, OpenError, Suite};
use crate::secret_key::ChatKey;

/// Says what is sealed. Changing it makes all sealed fields unreadable.
const LABEL: &str = "throughline field v1";

/// Where a field belongs. Each path has its own key, and an envelope opens only at its own path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPath<'a> {
    /// The id of the chat.
    pub chat: &'a str,
    /// The id of the node; empty for a field of the chat itself, such as its title.
    pub node: &'a str,
    /// The name of the field.
    pub field: &'a str,
}

impl ChatKey {
    /// Seals a field. The nonce must be new for each call with the same path.
    pub fn seal(&self, path: FieldPath<'_>, nonce: &EnvelopeNonce, bytes: &[u8]) -> Vec<u8> {
        path.bind(|binding| {
            envelope::seal(binding, self.expose(), self.key_check(), nonce, &[], bytes)
        })
    }

    /// Opens a field that was sealed under this key at this path.
    pub fn open(&self, path: FieldPath<'_>, envelope: &[u8]) -> Result<Vec<u8>, OpenError> {
        let envelope = Envelope::read(envelope, Suite::SecretKey)?;
        envelope.check_key(self.key_check())?;
        path.bind(|binding| envelope.open(binding, self.expose(), envelope.rest))
    }
}

impl FieldPath<'_> {
    fn bind<T>(self, work: impl FnOnce(Binding<'_>) -> T) -> T {
        let parts = [self.chat.as_bytes(), self.node.as_bytes(), self.field.as_bytes()];
        work(Binding { suite: Suite::SecretKey, label: LABEL, parts: &parts })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::envelope::{HEAD, key_id};
    use crate::keyring::SECRET;

    const PATH: FieldPath<'_> = FieldPath { chat: "chat-1", node: "node-1", field: "content" };
    const TEXT: &[u8] = b"the seventh row";

    fn key(byte: u8) -> ChatKey {
        ChatKey::new([byte; SECRET])
    }

    fn sealed() -> Vec<u8> {
        key(1).seal(PATH, &[9; 12], TEXT)
    }

    /// Covers: case 46, X-15, S0-60, S0-63
    #[test]
    fn same_text_in_two_chats_differs_and_swapped_envelopes_do_not_open() {
        let paths = [
            PATH,
            FieldPath { chat: "chat-2", ..PATH },
            FieldPath { node: "node-2", ..PATH },
            FieldPath { field: "thinking_content", ..PATH },
            FieldPath { chat: "node-1", node: "chat-1", ..PATH },
            FieldPath { chat: "chat-1n", node: "ode-1", ..PATH },
            FieldPath { node: "", field: "node-1content", ..PATH },
        ];
        let envelopes = paths.map(|path| key(1).seal(path, &[9; 12], TEXT));
        for (from, envelope) in envelopes.iter().enumerate() {
            for (to, &path) in paths.iter().enumerate() {
                let expected = if from == to { Ok(TEXT.to_vec()) } else { Err(OpenError::Altered) };
                assert_eq!(key(1).open(path, envelope), expected, "{from} at {to}");
                if from != to {
                    assert_ne!(envelope[HEAD..], envelopes[to][HEAD..], "{from} and {to}");
                }
            }
        }
    }

    #[test]
    fn another_key_is_reported_with_the_id_of_the_right_one() {
        let error = OpenError::WrongKey(key(1).key_check());
        assert_eq!(key(2).open(PATH, &sealed()), Err(error));
        assert_eq!(key_id(&sealed()), Ok(key(1).key_check()));
    }

    /// Covers: case 46
    #[test]
    fn each_changed_byte_has_its_error() {
        let envelope = sealed();
        for at in 0..envelope.len() {
            for bit in 0..8 {
                let mut changed = envelope.clone();
                changed[at] ^= 1 << bit;
                let byte = changed[at];
                let error = key(1).open(PATH, &changed).unwrap_err();
                match at {
                    0 | 1 => assert_eq!(error, OpenError::Foreign),
                    2 => assert_eq!(error, OpenError::UnknownVersion(byte)),
                    3 => assert_eq!(error, OpenError::UnknownSuite(byte)),
                    4..20 => assert!(matches!(error, OpenError::WrongKey(_)), "{at}: {error}"),
                    _ => assert_eq!(error, OpenError::Altered),
                }
            }
        }
    }

    #[test]
    fn each_truncated_envelope_has_its_error() {
        let envelope = sealed();
        for length in 0..envelope.len() {
            let error = key(1).open(PATH, &envelope[..length]).unwrap_err();
            let expected =
                if length < HEAD + 16 { OpenError::Truncated } else { OpenError::Altered };
            assert_eq!(error, expected, "{length}");
        }
        let short = key(2).open(PATH, &envelope[..HEAD + 15]);
        assert_eq!(short, Err(OpenError::Truncated), "the length is checked before the key");
        let longer = [&envelope[..], b"x"].concat();
        assert_eq!(key(1).open(PATH, &longer), Err(OpenError::Altered));
    }

    #[test]
    fn bytes_of_the_older_format_are_foreign() {
        let ring = crate::Keyring::new([1; SECRET]);
        let old = ring.seal(crate::Purpose::Conversation, &[5; 24], b"here", TEXT);
        assert!(!envelope::is_envelope(&old) && envelope::is_envelope(&sealed()));
        assert_eq!(key(1).open(PATH, &old), Err(OpenError::Foreign));
        assert_eq!(key_id(&old), Err(OpenError::Foreign));
    }

    #[test]
    fn empty_text_is_sealed_too() {
        let envelope = key(1).seal(PATH, &[9; 12], b"");
        assert_eq!(envelope.len(), HEAD + 16);
        assert_eq!(key(1).open(PATH, &envelope), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn sealed_fields_open_and_changed_or_moved_ones_do_not(
            secret in any::<[u8; 32]>(),
            nonce in any::<[u8; 12]>(),
            names in any::<[String; 3]>(),
            others in any::<[String; 3]>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let key = ChatKey::new(secret);
            let path = FieldPath { chat: &names[0], node: &names[1], field: &names[2] };
            let mut envelope = key.seal(path, &nonce, &bytes);
            prop_assert_eq!(key.open(path, &envelope), Ok(bytes));
            let other = FieldPath { chat: &others[0], node: &others[1], field: &others[2] };
            if other != path {
                prop_assert_eq!(key.open(other, &envelope), Err(OpenError::Altered));
            }
            let at = at.index(envelope.len());
            envelope[at] ^= 1 << bit;
            prop_assert!(key.open(path, &envelope).is_err());
            envelope.truncate(at);
            prop_assert!(key.open(path, &envelope).is_err());
        }

        #[test]
        fn foreign_bytes_never_open(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            as_envelope in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if as_envelope {
                let head = sealed();
                let length = bytes.len().min(20);
                bytes[..length].copy_from_slice(&head[..length]);
            }
            prop_assert!(key(1).open(PATH, &bytes).is_err());
        }
    }
}
