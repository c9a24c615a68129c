//! Checks vectors against the crate. The program `check_vectors` uses it too, for vectors that other
//! implementations have made.

use serde_json::Value;
use throughline_sealing::{
    AuthKey, AuthRecord, ChatKey, FieldPath, Keyring, MasterKey, OpenError, PassphraseSettings,
    PrivateKey, PublicKey, RecoveryCode, RecoveryCodeError, UserKeys, WrapKey, open_shared_key,
    share_key, unwrap_key, wrap_key,
};

/// The bytes of an envelope that are authenticated as they are: magic, version, suite, key id.
const BOUND: usize = 20;

/// A check of one vector. The text says what is wrong.
type Outcome = Result<(), String>;
type Check = fn(&Vector<'_>) -> Outcome;

/// Checks the list of fields; returns what is wrong.
pub(crate) fn check_fields(vectors: &Value) -> Vec<String> {
    check_list("field", vectors, check_field)
}

/// Checks the object with the lists of keys; returns what is wrong.
pub(crate) fn check_keys(vectors: &Value) -> Vec<String> {
    const LISTS: &[(&str, Check)] = &[
        ("managedChatKeys", check_managed_chat_key),
        ("wrappedKeys", check_wrapped_key),
        ("sharedKeys", check_shared_key),
        ("passphrases", check_passphrase),
        ("recoveryCodes", check_recovery_code),
        ("authRecords", check_auth_record),
    ];
    LISTS.iter().flat_map(|(name, check)| check_list(name, &vectors[*name], *check)).collect()
}

/// One entry of a list.
pub(crate) struct Vector<'a>(&'a Value);

impl Vector<'_> {
    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_else(|| panic!("no `{name}` in {}", self.0))
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        read_hex(self.text(name))
    }

    fn array<const N: usize>(&self, name: &str) -> [u8; N] {
        self.bytes(name).try_into().unwrap_or_else(|_| panic!("`{name}` in {}", self.0))
    }

    /// A name or a passphrase: UTF-8, as hexadecimal digits.
    fn name(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).expect("names are UTF-8")
    }

    fn number(&self, name: &str) -> u32 {
        let number = self.0[name].as_u64().and_then(|number| u32::try_from(number).ok());
        number.unwrap_or_else(|| panic!("no number `{name}` in {}", self.0))
    }

    fn error(&self) -> Option<&str> {
        self.0["error"].as_str()
    }

    fn expect(&self, name: &str, actual: &[u8]) -> Outcome {
        let (expected, actual) = (self.text(name), hex(actual));
        if expected == actual { Ok(()) } else { Err(format!("`{name}` is {actual} here")) }
    }

    /// Checks the inputs of the cipher, built here once more from the words of the specification.
    fn expect_binding(&self, label: &str, parts: &[&[u8]]) -> Outcome {
        let envelope = self.bytes("envelope");
        let bound = &envelope[..envelope.len().min(BOUND)];
        self.expect("info", &[join(&[label.as_bytes()]), join(parts)].concat())?;
        self.expect("aad", &[bound.to_vec(), join(parts)].concat())
    }

    /// Checks that an envelope opened to these bytes, or failed with the error of the vector.
    fn expect_opened(&self, name: &str, opened: Result<&[u8], OpenError>) -> Outcome {
        match (opened, self.error()) {
            (Ok(bytes), None) => self.expect(name, bytes),
            (Ok(_), Some(error)) => Err(format!("it opened, but should be `{error}`")),
            (Err(error), expected) if Some(open_error(error)) == expected => Ok(()),
            (Err(error), _) => Err(format!("it failed with `{}`: {error}", open_error(error))),
        }
    }
}

fn check_list(name: &str, list: &Value, check: Check) -> Vec<String> {
    let list = list.as_array().unwrap_or_else(|| panic!("no list `{name}`"));
    let failed = |(index, vector)| {
        let problem = check(&Vector(vector)).err()?;
        Some(format!("{name} {index}: {problem}"))
    };
    list.iter().enumerate().filter_map(failed).collect()
}

fn check_field(vector: &Vector<'_>) -> Outcome {
    let names = ["chat", "node", "field"].map(|name| vector.name(name));
    let path = FieldPath { chat: &names[0], node: &names[1], field: &names[2] };
    let key = ChatKey::new(vector.array("key"));
    let envelope = vector.bytes("envelope");
    vector.expect("keyId", key.key_check().as_bytes())?;
    vector.expect_binding(
        "throughline field v1",
        &[names[0].as_bytes(), names[1].as_bytes(), names[2].as_bytes()],
    )?;
    vector
        .expect_opened("plaintext", key.open(path, &envelope).as_deref().map_err(|error| *error))?;
    if vector.error().is_none() {
        let sealed = key.seal(path, &vector.array("nonce"), &vector.bytes("plaintext"));
        vector.expect("envelope", &sealed)?;
    }
    Ok(())
}

fn check_managed_chat_key(vector: &Vector<'_>) -> Outcome {
    let chat = vector.name("chat");
    let key = Keyring::new(vector.array("secret")).chat_key(&chat);
    vector.expect("info", &join(&[b"throughline managed chat v1", chat.as_bytes()]))?;
    vector.expect("key", key.expose())?;
    vector.expect("keyId", key.key_check().as_bytes())
}

fn check_wrapped_key(vector: &Vector<'_>) -> Outcome {
    let (under, envelope, name) =
        (vector.array("under"), vector.bytes("envelope"), vector.name("name"));
    let purpose = vector.text("purpose");
    let parts = [purpose.as_bytes(), name.as_bytes()];
    vector.expect_binding("throughline wrapped key v1", &parts)?;
    vector.expect("keyId", ChatKey::new(under).key_check().as_bytes())?;
    let (key, nonce) = (vector.array("key"), vector.array("nonce"));
    // The wrapped key once more, and what opening gives.
    macro_rules! wrapped {
        ($key:ident under $under:ident) => {{
            let under = $under::new(under);
            let wrapped = wrap_key(&$key::new(key), &under, &name, &nonce);
            let opened: Result<$key, OpenError> = unwrap_key(&envelope, &under, &name);
            (wrapped, opened.map(|key| *key.expose()))
        }};
    }
    let (wrapped, opened) = match purpose {
        "master key" => wrapped!(MasterKey under WrapKey),
        "chat key" => wrapped!(ChatKey under MasterKey),
        "private key" => wrapped!(PrivateKey under MasterKey),
        "previous chat key" => wrapped!(ChatKey under ChatKey),
        other => return Err(format!("unknown purpose `{other}`")),
    };
    vector
        .expect_opened("key", opened.as_ref().map(<[u8; 32]>::as_slice).map_err(|error| *error))?;
    if vector.error().is_none() { vector.expect("envelope", &wrapped) } else { Ok(()) }
}

fn check_shared_key(vector: &Vector<'_>) -> Outcome {
    let recipient = PrivateKey::new(vector.array("recipientPrivate"));
    let ephemeral = PrivateKey::new(vector.array("ephemeralPrivate"));
    let public = recipient.public_key();
    vector.expect("recipientPublic", public.as_bytes())?;
    vector.expect("keyId", public.fingerprint().as_bytes())?;
    vector.expect("ephemeralPublic", ephemeral.public_key().as_bytes())?;
    let (chat, envelope) = (vector.name("chat"), vector.bytes("envelope"));
    let ephemeral_public = ephemeral.public_key();
    vector.expect_binding(
        "throughline shared key v1",
        &[ephemeral_public.as_bytes(), public.as_bytes(), chat.as_bytes()],
    )?;
    let opened = open_shared_key(&envelope, &chat, &recipient);
    let opened = opened.as_ref().map(|key| key.expose().as_slice()).map_err(|error| *error);
    vector.expect_opened("key", opened)?;
    if vector.error().is_none() {
        let key = ChatKey::new(vector.array("key"));
        let to = PublicKey::new(vector.array("recipientPublic"));
        let shared = share_key(&key, &chat, &to, &ephemeral, &vector.array("nonce"));
        vector.expect("envelope", &shared.map_err(|error| error.to_string())?)?;
    }
    Ok(())
}

fn check_passphrase(vector: &Vector<'_>) -> Outcome {
    let settings = PassphraseSettings::new(
        vector.number("memoryKiB"),
        vector.number("iterations"),
        vector.number("parallelism"),
        &vector.bytes("salt"),
    );
    let keys = settings.and_then(|settings| settings.derive(&vector.name("passphrase")));
    match (keys, vector.error()) {
        (Ok(keys), None) => expect_user_keys(vector, &keys),
        (Err(_), Some("refused")) => Ok(()),
        (result, error) => Err(format!("{:?}, not {error:?}", result.err())),
    }
}

fn check_recovery_code(vector: &Vector<'_>) -> Outcome {
    let read = RecoveryCode::read(vector.text("code"));
    let name = |error| match error {
        RecoveryCodeError::Symbol(_) => "symbol",
        RecoveryCodeError::Length(_) => "length",
        RecoveryCodeError::Check => "check",
    };
    match (read, vector.error()) {
        (Ok(code), None) => {
            if code != RecoveryCode::new(vector.array("bytes")) {
                return Err("the code has other bytes".to_owned());
            }
            if *code.write() != vector.text("written") {
                return Err(format!("written as {}", *code.write()));
            }
            expect_user_keys(vector, &code.derive())
        }
        (Err(error), Some(expected)) if name(error) == expected => Ok(()),
        (result, error) => Err(format!("{:?}, not {error:?}", result.err())),
    }
}

fn expect_user_keys(vector: &Vector<'_>, keys: &UserKeys) -> Outcome {
    vector.expect("authKey", keys.auth.expose())?;
    vector.expect("wrapKey", keys.wrap.expose())
}

fn check_auth_record(vector: &Vector<'_>) -> Outcome {
    let key = AuthKey::new(vector.array("authKey"));
    let record = AuthRecord::read(&vector.bytes("record")).ok_or("the record cannot be read")?;
    if !record.verify(&key) {
        return Err("the key does not match the record".to_owned());
    }
    vector.expect("record", &AuthRecord::new(&key, vector.array("salt")).write())
}

/// The name of an error in vectors.
pub(crate) fn open_error(error: OpenError) -> &'static str {
    match error {
        OpenError::Foreign => "foreign",
        OpenError::Truncated => "truncated",
        OpenError::UnknownVersion(_) => "unknown_version",
        OpenError::UnknownSuite(_) => "unknown_suite",
        OpenError::WrongKey(_) => "wrong_key",
        OpenError::Altered => "altered",
    }
}

/// Each part after its length in four bytes.
pub(crate) fn join(parts: &[&[u8]]) -> Vec<u8> {
    let written = |part: &&[u8]| {
        let length = u32::try_from(part.len()).expect("a short part").to_be_bytes();
        [&length, *part].concat()
    };
    parts.iter().flat_map(written).collect()
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(|pair| byte(pair).unwrap_or_else(|| panic!("not hexadecimal: {text}"))).collect()
}
