//! Envelopes: sealed records in a client's opaque field. They bring a block back to its maker
//! without the memory, also after a restart or through another instance.
//!
//! An envelope names the maker of a block, holds its signature, and binds both to the block's text.
//! It is sealed, so only the holder of the keyring can read, make or change one. [`crate::history`]
//! decides which block goes to which target.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use throughline_canonical::{Block, Origin};
use throughline_sealing::{Keyring, Purpose, SealError, text};

use super::random;

/// The layout of the fields. It is the first byte, so that other layouts can be added.
const VERSION: u8 = 1;
/// The same layout with a call at the end.
const VERSION_WITH_CALL: u8 = 2;

/// Seals and opens envelopes.
#[derive(Clone, Debug)]
pub struct Envelopes {
    keyring: Arc<Keyring>,
}

/// What an envelope says about its block.
///
/// As text it has about 170 characters, for a short signature and names of usual length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The maker of the block.
    pub origin: Origin,
    /// The kind of block.
    pub kind: EnvelopeKind,
    /// The maker's own signature. `None` if the maker does not sign.
    pub signature: Option<String>,
    /// The [`Envelopes::content_hash`] of the block's text or data.
    pub content: [u8; 16],
    /// Whether the block was cut. A cut block must never be sent.
    pub cut: bool,
    /// The call directly after the block, if the client cannot hold the call's signature. On a
    /// call, the call itself, without a signature: some clients drop its id.
    pub call: Option<SignedCall>,
}

/// A signed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedCall {
    /// Its id, as the client knows it.
    pub id: String,
    /// The maker's own signature.
    pub signature: String,
}

/// The kind of an envelope's block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvelopeKind {
    /// Readable reasoning. The client has its text.
    Thinking,
    /// Encrypted reasoning, stored completely.
    Redacted {
        /// The encrypted data.
        data: String,
    },
    /// A tool call.
    Call,
    /// Text of the answer.
    Text,
}

/// The result of opening a text that may be an envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenResult {
    /// Not an envelope, for example a provider's own signature.
    NotOurs,
    /// It starts like an envelope and does not open: it was changed or cut. It must not be trusted,
    /// and no provider can read it.
    Altered,
    /// It is sealed with a key that is not on this keyring. No provider can read it.
    Sealed,
    /// A valid envelope.
    Ours(Box<Envelope>),
}

/// The result of opening a text that may be a sealed summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SummaryResult {
    /// Not sealed here.
    NotOurs,
    /// It starts like ours and does not open.
    Altered,
    /// The summary.
    Ours(String),
}

/// Binds a sealed summary to its use: it is no envelope of a block.
const SUMMARY: &[u8] = b"compaction";

impl Envelopes {
    /// Envelopes are sealed with the newest key of this keyring and opened with any of its keys.
    pub fn new(keyring: Arc<Keyring>) -> Self {
        Self { keyring }
    }

    /// Seals an envelope. Two envelopes with the same content differ.
    pub fn mint(&self, envelope: &Envelope) -> String {
        let bytes = write(envelope);
        text::write(&self.keyring.seal(Purpose::Envelope, &random::nonce(), &[], &bytes))
    }

    /// Puts the signature of a block into an envelope that names its maker, for a caller that keeps
    /// whole turns. If the block is sent in an assistant message, its maker gets it back unchanged,
    /// and no other backend. Blocks that have no maker to return to stay as they are.
    #[must_use]
    pub fn wrap(&self, block: Block, origin: &Origin) -> Block {
        let seal = |kind, signature, content: &str| {
            let content = Self::content_hash(content);
            let origin = origin.clone();
            self.mint(&Envelope { origin, kind, signature, content, cut: false, call: None })
        };
        match block {
            Block::Thinking { text, signature } => {
                let signature = Some(seal(EnvelopeKind::Thinking, signature, &text));
                Block::Thinking { text, signature }
            }
            Block::Redacted { data } => {
                let kind = EnvelopeKind::Redacted { data: data.clone() };
                Block::Redacted { data: seal(kind, None, &data) }
            }
            // Also without a signature: some makers sign only the first of several calls.
            Block::ToolCall { id, name, arguments, signature } => {
                let signature = Some(seal(EnvelopeKind::Call, signature, ""));
                Block::ToolCall { id, name, arguments, signature }
            }
            Block::Text { text, signature: signature @ Some(_), citations } => {
                let signature = Some(seal(EnvelopeKind::Text, signature, &text));
                Block::Text { text, signature, citations }
            }
            other => other,
        }
    }

    /// Opens the text that a client sent in an opaque field.
    pub fn open(&self, text: &str) -> OpenResult {
        if !Self::looks_ours(text) {
            return OpenResult::NotOurs;
        }
        let Some(sealed) = text::read(text) else {
            return OpenResult::Altered;
        };
        match self.keyring.open(Purpose::Envelope, &[], &sealed) {
            Ok(bytes) => read(&bytes)
                .map_or(OpenResult::Altered, |envelope| OpenResult::Ours(Box::new(envelope))),
            Err(SealError::UnknownKey) => OpenResult::Sealed,
            Err(SealError::Altered | SealError::Foreign) => OpenResult::Altered,
        }
    }

    /// Seals the summary of a conversation, for a client that carries it.
    pub fn seal_summary(&self, summary: &str) -> String {
        let nonce = random::nonce();
        text::write(&self.keyring.seal(Purpose::Envelope, &nonce, SUMMARY, summary.as_bytes()))
    }

    /// Opens a sealed summary.
    pub fn open_summary(&self, text: &str) -> SummaryResult {
        if !Self::looks_ours(text) {
            return SummaryResult::NotOurs;
        }
        text::read(text)
            .and_then(|sealed| self.keyring.open(Purpose::Envelope, SUMMARY, &sealed).ok())
            .and_then(|bytes| String::from_utf8(bytes.to_vec()).ok())
            .map_or(SummaryResult::Altered, SummaryResult::Ours)
    }

    /// Whether a text starts like an envelope. It is not opened, so it may still be invalid.
    pub fn looks_ours(text: &str) -> bool {
        text.trim_start().starts_with(text::PREFIX)
    }

    /// The hash that binds an envelope to its text or data.
    pub fn content_hash(text: &str) -> [u8; 16] {
        let hash = Sha256::new()
            .chain_update(b"throughline envelope content\xff")
            .chain_update(text)
            .finalize();
        let mut half = [0; 16];
        half.copy_from_slice(&hash[..16]);
        half
    }
}

/// The bits of the second byte. The lower two are the kind.
const KIND: u8 = 0b0011;
const SIGNED: u8 = 0b0100;
const CUT: u8 = 0b1000;

/// Version, bits and hash, then the fields, each after its length.
fn write(envelope: &Envelope) -> Vec<u8> {
    let (kind, data) = match &envelope.kind {
        EnvelopeKind::Thinking => (0, None),
        EnvelopeKind::Redacted { data } => (1, Some(data)),
        EnvelopeKind::Call => (2, None),
        EnvelopeKind::Text => (3, None),
    };
    let signed = envelope.signature.as_ref().map_or(0, |_| SIGNED);
    let cut = if envelope.cut { CUT } else { 0 };
    let version = match envelope.call {
        Some(_) => VERSION_WITH_CALL,
        None => VERSION,
    };
    let mut bytes = vec![version, kind | signed | cut];
    bytes.extend_from_slice(&envelope.content);
    let origin = &envelope.origin;
    let names = [&origin.domain, &origin.backend, &origin.model, &origin.credential];
    let call = envelope.call.iter();
    let call = call.flat_map(|call| [&call.id, &call.signature]);
    let fields = names.into_iter().chain(&envelope.signature).chain(data);
    for field in fields.chain(call) {
        write_length(field.len(), &mut bytes);
        bytes.extend_from_slice(field.as_bytes());
    }
    bytes
}

fn read(bytes: &[u8]) -> Option<Envelope> {
    let (&[version, bits], rest) = bytes.split_first_chunk::<2>()?;
    if ![VERSION, VERSION_WITH_CALL].contains(&version) || bits & !(KIND | SIGNED | CUT) != 0 {
        return None;
    }
    let (content, mut rest) = rest.split_first_chunk::<16>()?;
    let mut field = || read_field(&mut rest);
    let origin =
        Origin { domain: field()?, backend: field()?, model: field()?, credential: field()? };
    let signature = match bits & SIGNED {
        0 => None,
        _ => Some(field()?),
    };
    let kind = match bits & KIND {
        0 => EnvelopeKind::Thinking,
        1 => EnvelopeKind::Redacted { data: field()? },
        2 => EnvelopeKind::Call,
        _ => EnvelopeKind::Text,
    };
    let call = match version {
        VERSION_WITH_CALL => Some(SignedCall { id: field()?, signature: field()? }),
        _ => None,
    };
    rest.is_empty().then_some(Envelope {
        origin,
        kind,
        signature,
        content: *content,
        cut: bits & CUT != 0,
        call,
    })
}

/// Seven bits per byte, the lowest first. The top bit says that more follow.
fn write_length(mut length: usize, bytes: &mut Vec<u8>) {
    while length > 0x7f {
        bytes.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
}

fn read_length(rest: &mut &[u8]) -> Option<usize> {
    let mut length = 0;
    // Five bytes are enough for any field.
    for shift in (0..35).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(length);
        }
    }
    None
}

fn read_field(rest: &mut &[u8]) -> Option<String> {
    let length = read_length(rest)?;
    let (field, after) = rest.split_at_checked(length)?;
    *rest = after;
    String::from_utf8(field.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn envelopes(secret: u8) -> Envelopes {
        Envelopes::new(Arc::new(Keyring::new([secret; 32])))
    }

    fn envelope(kind: EnvelopeKind, signature: Option<&str>) -> Envelope {
        Envelope {
            origin: Origin {
                domain: "anthropic".into(),
                backend: "anthropic".into(),
                model: "claude-sonnet-4-5".into(),
                credential: "0123456789abcdef".into(),
            },
            kind,
            signature: signature.map(Into::into),
            content: Envelopes::content_hash("a thought"),
            cut: false,
            call: None,
        }
    }

    fn ours(opened: OpenResult) -> Envelope {
        match opened {
            OpenResult::Ours(envelope) => *envelope,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sealed_summary_opens_only_as_one() {
        let (one, other) = (envelopes(1), envelopes(2));
        let sealed = one.seal_summary("in short");
        assert_eq!(one.open_summary(&sealed), SummaryResult::Ours("in short".to_owned()));
        assert_eq!(other.open_summary(&sealed), SummaryResult::Altered);
        assert_eq!(one.open_summary("gAAAA"), SummaryResult::NotOurs);
        assert_eq!(one.open(&sealed), OpenResult::Altered);
        let envelope = one.mint(&envelope(EnvelopeKind::Call, None));
        assert_eq!(one.open_summary(&envelope), SummaryResult::Altered);
    }

    #[test]
    fn minted_envelope_opens_unchanged() {
        let envelopes = envelopes(1);
        let data = "x".repeat(70_000);
        for kind in [
            EnvelopeKind::Thinking,
            EnvelopeKind::Redacted { data },
            EnvelopeKind::Call,
            EnvelopeKind::Text,
        ] {
            for signature in [None, Some(""), Some("EqQBCkYIBxgC+/=")] {
                let call = SignedCall { id: "call_1".into(), signature: "c2lnbmVk".into() };
                for (cut, call) in [(false, None), (true, None), (false, Some(call))] {
                    let envelope = Envelope { cut, call, ..envelope(kind.clone(), signature) };
                    let text = envelopes.mint(&envelope);
                    assert!(Envelopes::looks_ours(&text));
                    assert_eq!(ours(envelopes.open(&text)), envelope);
                    let url_safe = text.replace('+', "-").replace('/', "_");
                    let bare = url_safe.trim_end_matches('=');
                    assert_eq!(ours(envelopes.open(bare)), envelope);
                }
            }
        }
    }

    #[test]
    fn provider_signature_is_not_ours() {
        for text in ["", "EqQBCkYIBxgCKkD", "skip_thought_signature_validator"] {
            assert_eq!(envelopes(1).open(text), OpenResult::NotOurs, "{text}");
            assert!(!Envelopes::looks_ours(text));
        }
    }

    #[test]
    fn envelope_of_another_keyring_is_sealed_and_a_cut_one_is_altered() {
        let text = envelopes(1).mint(&envelope(EnvelopeKind::Thinking, Some("sig")));
        assert_eq!(envelopes(2).open(&text), OpenResult::Sealed);
        for cut in ["TLine1", "TLine1AA", &text[..text.len() / 2]] {
            assert_eq!(envelopes(1).open(cut), OpenResult::Altered, "{cut}");
        }
    }

    #[test]
    fn older_key_of_the_keyring_still_opens() {
        let text = envelopes(1).mint(&envelope(EnvelopeKind::Call, None));
        let both = format!("{}{}", *Keyring::new([2; 32]).write(), *Keyring::new([1; 32]).write());
        let both = Envelopes::new(Arc::new(Keyring::read(&both).unwrap()));
        assert_eq!(ours(both.open(&text)), envelope(EnvelopeKind::Call, None));
        let newest = both.mint(&envelope(EnvelopeKind::Call, None));
        assert_eq!(envelopes(1).open(&newest), OpenResult::Sealed);
    }

    #[test]
    fn vault_record_is_not_an_envelope() {
        let keyring = Keyring::new([1; 32]);
        let bytes = write(&envelope(EnvelopeKind::Text, None));
        let sealed = keyring.seal(Purpose::Vault, &[7; 24], &[], &bytes);
        assert_eq!(envelopes(1).open(&text::write(&sealed)), OpenResult::Altered);
    }

    #[test]
    fn unsigned_envelope_has_168_characters_and_shows_nothing() {
        let text = envelopes(1).mint(&envelope(EnvelopeKind::Thinking, Some("")));
        assert_eq!(text.len(), 168, "{text}");
        assert!(text.len() <= 200);
        let sealed = text::read(&text).unwrap();
        assert!(!sealed.windows(9).any(|bytes| bytes == b"anthropic"));
    }

    #[test]
    fn unknown_layout_is_rejected() {
        let whole = write(&envelope(EnvelopeKind::Thinking, Some("sig")));
        assert!(read(&whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), None, "{end}");
        }
        assert_eq!(read(&[&whole[..], &[0]].concat()), None);
        for (at, byte) in [(0, VERSION + 1), (1, 0b1_0000 | whole[1]), (19, 0xff)] {
            let mut other = whole.clone();
            other[at] = byte;
            assert_eq!(read(&other), None, "{at}");
        }
    }

    /// The exact bytes of earlier versions.
    #[test]
    fn envelope_without_a_call_keeps_its_layout() {
        let mut bytes = vec![1, 0b0100];
        bytes.extend(Envelopes::content_hash("a thought"));
        for field in ["anthropic", "anthropic", "claude-sonnet-4-5", "0123456789abcdef", "sig"] {
            bytes.push(field.len() as u8);
            bytes.extend(field.bytes());
        }
        let envelope = envelope(EnvelopeKind::Thinking, Some("sig"));
        assert_eq!(write(&envelope), bytes);
        assert_eq!(read(&bytes), Some(envelope));
    }

    #[test]
    fn two_envelopes_with_the_same_content_differ() {
        let envelope = envelope(EnvelopeKind::Thinking, None);
        let envelopes = envelopes(1);
        assert_ne!(envelopes.mint(&envelope), envelopes.mint(&envelope));
    }

    proptest! {
        #[test]
        fn changed_letter_is_never_accepted(
            signature in "[A-Za-z0-9+/]{0,80}",
            at in any::<prop::sample::Index>(),
            letter in proptest::char::range('A', 'Z'),
        ) {
            let envelopes = envelopes(1);
            let envelope = envelope(EnvelopeKind::Thinking, Some(&signature));
            let text = envelopes.mint(&envelope);
            let at = at.index(text.trim_end_matches('=').len());
            let mut altered: Vec<char> = text.chars().collect();
            prop_assume!(altered[at] != letter);
            altered[at] = letter;
            let altered: String = altered.into_iter().collect();
            let same = text::read(&altered) == text::read(&text);
            prop_assert!(same || !matches!(envelopes.open(&altered), OpenResult::Ours(_)));
        }

        #[test]
        fn any_bytes_are_read_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let laid_out = |version| [&[version], &bytes[..]].concat();
            let both = [laid_out(VERSION), laid_out(VERSION_WITH_CALL)];
            for bytes in [bytes].into_iter().chain(both) {
                if let Some(envelope) = read(&bytes) {
                    prop_assert_eq!(read(&write(&envelope)), Some(envelope));
                }
            }
        }
    }
}
