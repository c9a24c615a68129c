//! Opens envelopes: what opens is exactly what sealing again gives, and nothing else opens.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_sealing::secret_key::role;
use throughline_sealing::{
    AuthRecord, ChatKey, FieldPath, KeyCheck, MasterKey, PrivateKey, RecoveryCode, envelope,
    open_shared_key, unwrap_key, wrap_key,
};

const PATH: FieldPath<'_> = FieldPath { chat: "chat-1", node: "node-1", field: "content" };

fuzz_target!(|input: &[u8]| {
    let key = ChatKey::new([7; 32]);
    open(&key, input);
    // The key id is too long to be guessed, so the checks after it need a right one.
    let head = &key.seal(PATH, &[9; 12], b"")[..20];
    open(&key, &[head, input].concat());
    change(&key, input);
    read_text(input);
});

fn open(key: &ChatKey, bytes: &[u8]) {
    if let Ok(opened) = key.open(PATH, bytes) {
        let nonce = bytes[20..32].try_into().unwrap();
        assert_eq!(key.seal(PATH, &nonce, &opened), bytes);
        assert_eq!(envelope::key_id(bytes), Ok(key.key_check()));
    }
    let master = MasterKey::new([7; 32]);
    if let Ok(opened) = unwrap_key::<role::Chat, _>(bytes, &master, "chat-1") {
        let nonce = bytes[20..32].try_into().unwrap();
        assert_eq!(wrap_key(&opened, &master, "chat-1", &nonce), bytes);
    }
    let private = PrivateKey::new([7; 32]);
    let shared_with_us = Ok(private.public_key().fingerprint());
    if open_shared_key(bytes, "chat-1", &private).is_ok() {
        assert_eq!(envelope::key_id(bytes), shared_with_us);
    }
    let mut shared = bytes.to_vec();
    if let (Some(head), Ok(id)) = (shared.get_mut(..20), shared_with_us) {
        head[..4].copy_from_slice(b"TL\x01\x02");
        head[4..].copy_from_slice(id.as_bytes());
        assert!(open_shared_key(&shared, "chat-1", &private).is_err(), "it was not sealed by us");
    }
}

/// Seals the input; then its last byte chooses which byte is changed, and where the end is.
fn change(key: &ChatKey, input: &[u8]) {
    let sealed = key.seal(PATH, &[9; 12], input);
    assert_eq!(key.open(PATH, &sealed).as_deref(), Ok(input));
    let at = usize::from(input.last().copied().unwrap_or_default()) % sealed.len();
    let mut changed = sealed.clone();
    changed[at] ^= 1 << (input.len() % 8);
    assert!(key.open(PATH, &changed).is_err());
    assert!(key.open(PATH, &sealed[..at]).is_err());
    let elsewhere = FieldPath { node: "node-2", ..PATH };
    assert!(key.open(elsewhere, &sealed).is_err());
}

fn read_text(input: &[u8]) {
    if let Some(record) = AuthRecord::read(input) {
        assert_eq!(record.write(), input);
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(code) = RecoveryCode::read(text) {
        assert_eq!(RecoveryCode::read(&code.write()), Ok(code));
    }
    let _ = KeyCheck::read(text);
    if let Ok(key) = ChatKey::read(text) {
        assert_eq!(*key.write(), text.trim_end_matches('='));
    }
}
