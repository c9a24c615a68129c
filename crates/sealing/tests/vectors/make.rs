//! Makes the vectors from fixed keys and nonces.

use argon2::{Algorithm, Argon2, Params, Version};
use serde_json::{Value, json};
use throughline_sealing::{
    AuthKey, AuthRecord, ChatKey, FieldPath, Keyring, MasterKey, PassphraseSettings, PrivateKey,
    Purpose, RecoveryCode, UserKeys, WrapKey, share_key, wrap_key,
};
use x25519_dalek::{PublicKey as Point, StaticSecret};

use crate::check::{hex, join};

const BOUND: usize = 20;
const HEAD: usize = 32;

/// A sealed field, and the place where it is opened.
struct Field<'a> {
    key: &'a ChatKey,
    path: FieldPath<'a>,
    envelope: Vec<u8>,
    nonce: [u8; 12],
    plaintext: &'a [u8],
}

/// The vectors of fields: those that open, then those that must not.
pub(crate) fn fields() -> Value {
    let (key, other) = (ChatKey::new(bytes(1)), ChatKey::new(bytes(101)));
    let path = FieldPath { chat: "chat-1", node: "node-1", field: "content" };
    let binary: Vec<u8> = (0..=255).collect();
    let opened: &[(&ChatKey, FieldPath<'_>, &[u8])] = &[
        (&key, path, b"What is in the seventh row?"),
        (&key, FieldPath { field: "thinking_content", ..path }, b"The user wants the seventh row."),
        (&key, FieldPath { field: "thinking_signature", ..path }, b""),
        (
            &key,
            FieldPath { node: "", field: "title", ..path },
            "Zeile 7 → naïve Übersicht".as_bytes(),
        ),
        (&other, FieldPath { chat: "Gespräch", node: "節点", field: "raw_response" }, &binary),
        (&other, FieldPath { chat: "", node: "", field: "" }, b"sixteen bytes ok"),
    ];
    let mut vectors = Vec::new();
    for (index, &(key, path, plaintext)) in opened.iter().enumerate() {
        let nonce = bytes(u8::try_from(index * 16).unwrap());
        let envelope = key.seal(path, &nonce, plaintext);
        vectors.push(field(&Field { key, path, envelope, nonce, plaintext }, None));
    }
    vectors.extend(refused_fields(&key, &other, path));
    Value::Array(vectors)
}

fn refused_fields(key: &ChatKey, other: &ChatKey, path: FieldPath<'_>) -> Vec<Value> {
    let plaintext = b"What is in the seventh row?";
    let nonce = bytes(200);
    let sealed = key.seal(path, &nonce, plaintext);
    let refused = |key, path, envelope: Vec<u8>, error| {
        let nonce = envelope.get(BOUND..HEAD).map_or(nonce, |nonce| nonce.try_into().unwrap());
        field(&Field { key, path, envelope, nonce, plaintext }, Some(error))
    };
    let changed = |at: usize, to: u8| {
        let mut changed = sealed.clone();
        changed[at] = to;
        changed
    };
    let flipped = |at: usize| changed(at, sealed[at] ^ 1);
    let mut vectors = vec![
        refused(other, path, sealed.clone(), "wrong_key"),
        refused(key, path, flipped(4), "wrong_key"),
        refused(key, path, flipped(19), "wrong_key"),
    ];
    for moved in [
        FieldPath { chat: "chat-2", ..path },
        FieldPath { node: "node-2", ..path },
        FieldPath { field: "thinking_content", ..path },
        FieldPath { chat: "node-1", node: "chat-1", ..path },
        FieldPath { chat: "chat-1n", node: "ode-1", ..path },
        FieldPath { node: "", field: "node-1content", ..path },
    ] {
        vectors.push(refused(key, moved, sealed.clone(), "altered"));
    }
    for at in [BOUND, HEAD - 1, HEAD, sealed.len() - 16, sealed.len() - 1] {
        vectors.push(refused(key, path, flipped(at), "altered"));
    }
    vectors.push(refused(key, path, [&sealed[..], &[0]].concat(), "altered"));
    for length in [sealed.len() - 1, HEAD + 16] {
        vectors.push(refused(key, path, sealed[..length].to_vec(), "altered"));
    }
    for length in [HEAD + 15, HEAD, HEAD - 1, BOUND, 4, 3, 2, 1, 0] {
        vectors.push(refused(key, path, sealed[..length].to_vec(), "truncated"));
    }
    let old = Keyring::new(bytes(1)).seal(Purpose::Conversation, &bytes(7), b"here", plaintext);
    vectors.extend([
        refused(key, path, changed(2, 0), "unknown_version"),
        refused(key, path, changed(2, 2), "unknown_version"),
        refused(key, path, changed(3, 0), "unknown_suite"),
        refused(key, path, changed(3, 2), "unknown_suite"),
        refused(key, path, changed(3, 3), "unknown_suite"),
        refused(key, path, changed(0, b't'), "foreign"),
        refused(key, path, changed(1, b'K'), "foreign"),
        refused(key, path, old, "foreign"),
    ]);
    vectors
}

fn field(field: &Field<'_>, error: Option<&str>) -> Value {
    let path = field.path;
    let names = [path.chat, path.node, path.field];
    let parts = join(&names.map(str::as_bytes));
    let mut vector = json!({
        "key": hex(field.key.expose()),
        "keyId": hex(field.key.key_check().as_bytes()),
        "chat": hex(path.chat.as_bytes()),
        "node": hex(path.node.as_bytes()),
        "field": hex(path.field.as_bytes()),
        "info": hex(&[join(&[b"throughline field v1"]), parts.clone()].concat()),
        "aad": hex(&[bound(&field.envelope), &parts].concat()),
        "nonce": hex(&field.nonce),
        "envelope": hex(&field.envelope),
        "plaintext": hex(field.plaintext),
    });
    set_error(&mut vector, error);
    vector
}

/// The vectors of keys, in lists.
pub(crate) fn keys() -> Value {
    json!({
        "managedChatKeys": managed_chat_keys(),
        "wrappedKeys": wrapped_keys(),
        "sharedKeys": shared_keys(),
        "passphrases": passphrases(),
        "recoveryCodes": recovery_codes(),
        "authRecords": auth_records(),
    })
}

fn managed_chat_keys() -> Vec<Value> {
    let vector = |(first, chat): (u8, &str)| {
        let key = Keyring::new(bytes(first)).chat_key(chat);
        json!({
            "secret": hex(&bytes::<32>(first)),
            "chat": hex(chat.as_bytes()),
            "info": hex(&join(&[b"throughline managed chat v1", chat.as_bytes()])),
            "key": hex(key.expose()),
            "keyId": hex(key.key_check().as_bytes()),
        })
    };
    [(1, "chat-1"), (1, "Gespräch"), (2, "chat-1")].into_iter().map(vector).collect()
}

fn wrapped_keys() -> Vec<Value> {
    let nonce = bytes(50);
    let (under, key) = (bytes(60), bytes(90));
    let (wrap, master, next) = (WrapKey::new(under), MasterKey::new(under), ChatKey::new(under));
    let chat = wrap_key(&ChatKey::new(key), &master, "chat-1", &nonce);
    let id = next.key_check();
    let vector = |purpose: &str, name: &str, envelope: &[u8], error| {
        let parts = join(&[purpose.as_bytes(), name.as_bytes()]);
        let mut vector = json!({
            "purpose": purpose,
            "name": hex(name.as_bytes()),
            "under": hex(&under),
            "keyId": hex(id.as_bytes()),
            "key": hex(&key),
            "info": hex(&[join(&[b"throughline wrapped key v1"]), parts.clone()].concat()),
            "aad": hex(&[bound(envelope), &parts].concat()),
            "nonce": hex(&nonce),
            "envelope": hex(envelope),
        });
        set_error(&mut vector, error);
        vector
    };
    let mut changed = chat.clone();
    changed[4] ^= 1;
    vec![
        vector("master key", "ada", &wrap_key(&MasterKey::new(key), &wrap, "ada", &nonce), None),
        vector("chat key", "chat-1", &chat, None),
        vector(
            "private key",
            "åda",
            &wrap_key(&PrivateKey::new(key), &master, "åda", &nonce),
            None,
        ),
        vector(
            "previous chat key",
            "chat-1",
            &wrap_key(&ChatKey::new(key), &next, "chat-1", &nonce),
            None,
        ),
        vector("chat key", "chat-2", &chat, Some("altered")),
        vector("private key", "chat-1", &chat, Some("altered")),
        vector("previous chat key", "chat-1", &chat, Some("altered")),
        vector("chat key", "chat-1", &changed, Some("wrong_key")),
        vector("chat key", "chat-1", &chat[..79], Some("altered")),
        vector("chat key", "chat-1", &chat[..47], Some("truncated")),
    ]
}

fn shared_keys() -> Vec<Value> {
    let (key, nonce) = (ChatKey::new(bytes(90)), bytes(50));
    let (recipient, ephemeral) = (PrivateKey::new(bytes(120)), PrivateKey::new(bytes(160)));
    let (public, once) = (recipient.public_key(), ephemeral.public_key());
    let secret = StaticSecret::from(*ephemeral.expose());
    let secret = secret.diffie_hellman(&Point::from(*public.as_bytes()));
    let vector = |chat: &str, envelope: &[u8], error| {
        let parts = join(&[once.as_bytes(), public.as_bytes(), chat.as_bytes()]);
        let mut vector = json!({
            "chat": hex(chat.as_bytes()),
            "key": hex(key.expose()),
            "recipientPrivate": hex(recipient.expose()),
            "recipientPublic": hex(public.as_bytes()),
            "keyId": hex(public.fingerprint().as_bytes()),
            "ephemeralPrivate": hex(ephemeral.expose()),
            "ephemeralPublic": hex(once.as_bytes()),
            "sharedSecret": hex(secret.as_bytes()),
            "info": hex(&[join(&[b"throughline shared key v1"]), parts.clone()].concat()),
            "aad": hex(&[bound(envelope), &parts].concat()),
            "nonce": hex(&nonce),
            "envelope": hex(envelope),
        });
        set_error(&mut vector, error);
        vector
    };
    let share = |chat: &str| share_key(&key, chat, &public, &ephemeral, &nonce).unwrap();
    let shared = share("chat-1");
    let flipped = |at: usize, bit: u8| {
        let mut flipped = shared.clone();
        flipped[at] ^= bit;
        flipped
    };
    let weak = [&shared[..HEAD], &[0; 32], &shared[HEAD + 32..]].concat();
    vec![
        vector("chat-1", &shared, None),
        vector("Gespräch", &share("Gespräch"), None),
        vector("chat-2", &shared, Some("altered")),
        vector("chat-1", &flipped(HEAD + 31, 0x80), Some("altered")),
        vector("chat-1", &flipped(HEAD + 32, 1), Some("altered")),
        vector("chat-1", &weak, Some("altered")),
        vector("chat-1", &flipped(4, 1), Some("wrong_key")),
        vector("chat-1", &flipped(3, 3), Some("unknown_suite")),
        vector("chat-1", &shared[..111], Some("altered")),
        vector("chat-1", &shared[..79], Some("truncated")),
    ]
}

fn passphrases() -> Vec<Value> {
    let vector = |passphrase: &str, memory: u32, iterations: u32, parallelism: u32| {
        let salt: [u8; 16] = bytes(30);
        let mut vector = json!({
            "passphrase": hex(passphrase.as_bytes()),
            "memoryKiB": memory,
            "iterations": iterations,
            "parallelism": parallelism,
            "salt": hex(&salt),
        });
        let settings = PassphraseSettings::new(memory, iterations, parallelism, &salt);
        let Ok(keys) = settings.and_then(|settings| settings.derive(passphrase)) else {
            set_error(&mut vector, Some("refused"));
            return vector;
        };
        let params = Params::new(memory, iterations, parallelism, Some(32)).unwrap();
        let mut root = [0; 32];
        // The normal form of the only passphrase here that is not in it.
        let normal = passphrase.replace("e\u{301}", "\u{e9}");
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(normal.as_bytes(), &salt, &mut root)
            .unwrap();
        vector["root"] = hex(&root).into();
        add_user_keys(&mut vector, &keys);
        vector
    };
    vec![
        vector("correct horse battery staple", 65_536, 3, 1),
        vector("cafe\u{301} au lait", 65_536, 3, 4),
        vector("correct horse battery staple", 65_535, 3, 1),
        vector("correct horse battery staple", 65_536, 2, 1),
        vector("", 65_536, 3, 1),
    ]
}

fn recovery_codes() -> Vec<Value> {
    let vector = |code: &RecoveryCode, bytes: [u8; 20], typed: &str| {
        let mut vector = json!({ "code": typed, "bytes": hex(&bytes), "written": *code.write() });
        add_user_keys(&mut vector, &code.derive());
        vector
    };
    let first = RecoveryCode::new(bytes(17));
    let written = first.write();
    let typed = written.to_lowercase().replace('-', " ").replace('1', "I").replace('0', "O");
    let refused = |code: &str, error: &str| json!({ "code": code, "error": error });
    let swapped = [&written[1..2], &written[..1], &written[2..]].concat();
    let mut vectors = vec![
        vector(&first, bytes(17), &written),
        vector(&first, bytes(17), &typed),
        refused(&swapped, "check"),
        refused(&written[1..], "length"),
        refused(&format!("{}!", *written), "symbol"),
    ];
    for all in [[0; 20], [255; 20]] {
        let code = RecoveryCode::new(all);
        vectors.push(vector(&code, all, &code.write()));
    }
    vectors
}

fn auth_records() -> Vec<Value> {
    let (key, salt) = (AuthKey::new(bytes(70)), bytes(10));
    let record = AuthRecord::new(&key, salt);
    vec![json!({
        "authKey": hex(key.expose()),
        "salt": hex(&salt),
        "record": hex(&record.write()),
    })]
}

fn add_user_keys(vector: &mut Value, keys: &UserKeys) {
    vector["authKey"] = hex(keys.auth.expose()).into();
    vector["wrapKey"] = hex(keys.wrap.expose()).into();
}

fn set_error(vector: &mut Value, error: Option<&str>) {
    if let Some(error) = error {
        vector["error"] = error.into();
    }
}

/// The authenticated part of the head, as far as the envelope has it.
fn bound(envelope: &[u8]) -> &[u8] {
    &envelope[..envelope.len().min(BOUND)]
}

/// Consecutive numbers.
fn bytes<const N: usize>(first: u8) -> [u8; N] {
    std::array::from_fn(|at| first.wrapping_add(u8::try_from(at).unwrap()))
}
