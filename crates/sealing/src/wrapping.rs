//! Keys wrapped under other keys. The table of [`WrappedUnder`] says which key may wrap which.

use zeroize::Zeroizing;

use crate::envelope::{self, Binding, Envelope, EnvelopeNonce, OpenError, Suite};
use crate::secret_key::SecretKey;
use crate::secret_key::role::{Chat, Master, Private, Role, Wrap};

/// Says what is sealed. Changing it makes all wrapped keys unreadable.
const LABEL: &str = "throughline wrapped key v1";

/// A key with this role may be wrapped under a key with the role `Under`.
pub trait WrappedUnder<Under: Role>: Role {
    /// What the wrapped key is for. It is authenticated, so that a wrapped key serves no other
    /// purpose.
    const PURPOSE: &'static str;
}

/// A user's master key, under a key that comes from the passphrase or from the recovery code.
impl WrappedUnder<Wrap> for Master {
    const PURPOSE: &'static str = "master key";
}

/// The key of a chat, under the master key of a user who may read it.
impl WrappedUnder<Master> for Chat {
    const PURPOSE: &'static str = "chat key";
}

/// A user's private key, under the user's master key.
impl WrappedUnder<Master> for Private {
    const PURPOSE: &'static str = "private key";
}

/// The previous key of a chat, under the next one: who has the next key can read older nodes too.
impl WrappedUnder<Chat> for Chat {
    const PURPOSE: &'static str = "previous chat key";
}

/// Wraps a key. `name` says whose it is: the user's name for a master key or a private key, the id of
/// the chat for a chat key. The nonce must be new for each call with the same purpose, name and
/// wrapping key.
pub fn wrap_key<Key, Under>(
    key: &SecretKey<Key>,
    under: &SecretKey<Under>,
    name: &str,
    nonce: &EnvelopeNonce,
) -> Vec<u8>
where
    Key: WrappedUnder<Under>,
    Under: Role,
{
    let parts = [Key::PURPOSE.as_bytes(), name.as_bytes()];
    envelope::seal(binding(&parts), under.expose(), under.key_check(), nonce, &[], key.expose())
}

/// Opens a wrapped key.
pub fn unwrap_key<Key, Under>(
    wrapped: &[u8],
    under: &SecretKey<Under>,
    name: &str,
) -> Result<SecretKey<Key>, OpenError>
where
    Key: WrappedUnder<Under>,
    Under: Role,
{
    let envelope = Envelope::read(wrapped, Suite::SecretKey)?;
    envelope.check_key(under.key_check())?;
    let parts = [Key::PURPOSE.as_bytes(), name.as_bytes()];
    read_key(envelope.open(binding(&parts), under.expose(), envelope.rest)?)
}

fn binding<'a>(parts: &'a [&'a [u8]]) -> Binding<'a> {
    Binding { suite: Suite::SecretKey, label: LABEL, parts }
}

/// Reads a key that was opened. Another length means that it was not made by this format.
pub(crate) fn read_key<R: Role>(opened: Vec<u8>) -> Result<SecretKey<R>, OpenError> {
    let opened = Zeroizing::new(opened);
    let bytes = opened.as_slice().try_into().map_err(|_| OpenError::Altered)?;
    Ok(SecretKey::from_zeroizing(Zeroizing::new(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::SECRET;
    use crate::secret_key::{ChatKey, MasterKey, PrivateKey, WrapKey};

    const NONCE: EnvelopeNonce = [4; 12];

    #[test]
    fn wrapped_keys_open_under_their_own_key_and_name() {
        let (wrap, master) = (WrapKey::new([1; SECRET]), MasterKey::new([2; SECRET]));
        let (chat, private) = (ChatKey::new([3; SECRET]), PrivateKey::new([4; SECRET]));
        let next = ChatKey::new([5; SECRET]);
        let wrapped = wrap_key(&master, &wrap, "ada", &NONCE);
        assert_eq!(wrapped.len(), 80);
        assert_eq!(unwrap_key(&wrapped, &wrap, "ada"), Ok(master.clone()));
        let wrapped = wrap_key(&private, &master, "ada", &NONCE);
        assert_eq!(unwrap_key(&wrapped, &master, "ada"), Ok(private));
        let wrapped = wrap_key(&chat, &master, "chat-1", &NONCE);
        assert_eq!(unwrap_key(&wrapped, &master, "chat-1"), Ok(chat.clone()));
        let wrapped = wrap_key(&chat, &next, "chat-1", &NONCE);
        assert_eq!(unwrap_key(&wrapped, &next, "chat-1"), Ok(chat));
    }

    /// A new passphrase changes the wrapped master key, and nothing below it.
    ///
    ///
    #[test]
    fn new_passphrase_wraps_the_same_master_key_again() {
        let (old, new) = (WrapKey::new([1; SECRET]), WrapKey::new([2; SECRET]));
        let (master, chat) = (MasterKey::new([3; SECRET]), ChatKey::new([4; SECRET]));
        let wrapped_chat = wrap_key(&chat, &master, "chat-1", &NONCE);
        let wrapped = wrap_key(&master, &old, "ada", &NONCE);
        let opened: MasterKey = unwrap_key(&wrapped, &old, "ada").unwrap();
        let again = wrap_key(&opened, &new, "ada", &[5; 12]);
        let wrong = unwrap_key::<Master, Wrap>(&again, &old, "ada");
        assert_eq!(wrong, Err(OpenError::WrongKey(new.key_check())));
        let opened: MasterKey = unwrap_key(&again, &new, "ada").unwrap();
        assert_eq!(unwrap_key(&wrapped_chat, &opened, "chat-1"), Ok(chat));
    }

    #[test]
    fn wrapped_key_serves_no_other_purpose_name_or_key() {
        let master = MasterKey::new([2; SECRET]);
        let wrapped = wrap_key(&ChatKey::new([3; SECRET]), &master, "chat-1", &NONCE);
        let as_chat = |under: &MasterKey, name| unwrap_key::<Chat, Master>(&wrapped, under, name);
        assert_eq!(as_chat(&master, "chat-2"), Err(OpenError::Altered));
        assert_eq!(unwrap_key::<Private, _>(&wrapped, &master, "chat-1"), Err(OpenError::Altered));
        let other = MasterKey::new([9; SECRET]);
        assert_eq!(as_chat(&other, "chat-1"), Err(OpenError::WrongKey(master.key_check())));
        for at in 0..wrapped.len() {
            let mut changed = wrapped.clone();
            changed[at] ^= 1;
            assert!(unwrap_key::<Chat, _>(&changed, &master, "chat-1").is_err(), "{at}");
            assert!(unwrap_key::<Chat, _>(&wrapped[..at], &master, "chat-1").is_err(), "{at}");
        }
    }

    /// A wrapped key and a field under one chat key must not be confused with each other.
    #[test]
    fn wrapped_key_is_not_a_field() {
        use crate::field::FieldPath;
        let key = ChatKey::new([5; SECRET]);
        let path = FieldPath { chat: "previous chat key", node: "chat-1", field: "" };
        let wrapped = wrap_key(&ChatKey::new([3; SECRET]), &key, "chat-1", &NONCE);
        assert_eq!(key.open(path, &wrapped), Err(OpenError::Altered));
    }
}
