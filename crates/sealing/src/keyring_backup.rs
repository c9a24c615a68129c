//! The text of a server's keyring, sealed under a recovery code. Such a backup can lie beside the
//! database: without the code it opens nothing.

use zeroize::Zeroizing;

use crate::envelope::{self, Binding, Envelope, EnvelopeNonce, OpenError, Suite};
use crate::recovery_code::RecoveryCode;

/// Says what is sealed. Changing it makes all backups unreadable.
const LABEL: &str = "throughline keyring backup v1";

const BINDING: Binding<'static> = Binding { suite: Suite::SecretKey, label: LABEL, parts: &[] };

/// Seals the text of a keyring. The nonce must be new for each call with the same code.
pub fn seal_keyring(text: &str, code: &RecoveryCode, nonce: &EnvelopeNonce) -> Vec<u8> {
    let key = code.derive().wrap;
    envelope::seal(BINDING, key.expose(), key.key_check(), nonce, &[], text.as_bytes())
}

/// Opens the text of a keyring.
pub fn open_keyring(sealed: &[u8], code: &RecoveryCode) -> Result<Zeroizing<String>, OpenError> {
    let key = code.derive().wrap;
    let envelope = Envelope::read(sealed, Suite::SecretKey)?;
    envelope.check_key(key.key_check())?;
    let opened = envelope.open(BINDING, key.expose(), envelope.rest)?;
    String::from_utf8(opened).map(Zeroizing::new).map_err(|_| OpenError::Altered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery_code::RECOVERY_CODE;

    #[test]
    fn backup_opens_with_its_code_only_and_not_after_a_change() {
        let [code, other] = [7, 8].map(|byte| RecoveryCode::new([byte; RECOVERY_CODE]));
        let sealed = seal_keyring("key # made today\n", &code, &[4; 12]);
        assert_eq!(open_keyring(&sealed, &code).unwrap().as_str(), "key # made today\n");
        assert!(matches!(open_keyring(&sealed, &other), Err(OpenError::WrongKey(_))));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open_keyring(&changed, &code).is_err(), "{at}");
            assert!(open_keyring(&sealed[..at], &code).is_err(), "{at}");
        }
    }
}
