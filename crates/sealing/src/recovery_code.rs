//! The recovery code: a random secret that a user writes down, as text that survives being copied by
//! hand. It replaces a forgotten passphrase.

use zeroize::Zeroizing;

use crate::user_keys::UserKeys;

/// Bytes of a recovery code. 160 bits cannot be guessed, so no Argon2id is needed, and they fill 32
/// symbols exactly.
pub const RECOVERY_CODE: usize = 20;

/// Symbols without the check symbol.
const SYMBOLS: usize = RECOVERY_CODE * 8 / 5;
const GROUP: usize = 4;

/// Crockford's base32: no letter that looks like a digit. The last five serve as check symbols only.
const ALPHABET: &[u8; 37] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ*~$=U";

/// A recovery code.
#[derive(Clone, PartialEq, Eq)]
pub struct RecoveryCode(Zeroizing<[u8; RECOVERY_CODE]>);

/// Why a text is not a recovery code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryCodeError {
    /// A character that no code contains.
    #[error("`{0}` is not part of a recovery code")]
    Symbol(char),
    /// Symbols are missing, or there are too many.
    #[error("{0} symbols instead of {total}", total = SYMBOLS + 1)]
    Length(usize),
    /// The check symbol does not match: a symbol is wrong, or two are swapped.
    #[error("the last symbol does not match the others; a symbol is wrong")]
    Check,
}

/// Shows nothing of the code.
impl std::fmt::Debug for RecoveryCode {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("RecoveryCode(..)")
    }
}

impl RecoveryCode {
    /// A code of these bytes, which must come from a secure random source.
    pub fn new(bytes: [u8; RECOVERY_CODE]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Writes the code in groups of four symbols. The last group is the check symbol alone.
    pub fn write(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(SYMBOLS + SYMBOLS / GROUP + 1));
        for index in 0..SYMBOLS {
            text.push(char::from(ALPHABET[usize::from(self.symbol(index))]));
            if index % GROUP == GROUP - 1 {
                text.push('-');
            }
        }
        text.push(char::from(ALPHABET[self.check()]));
        text
    }

    /// Reads a code. Case, spaces and hyphens do not matter, and letters that look like a digit count
    /// as that digit.
    pub fn read(text: &str) -> Result<Self, RecoveryCodeError> {
        let mut values = Zeroizing::new(Vec::with_capacity(SYMBOLS + 1));
        for letter in text.chars().filter(|letter| !letter.is_whitespace() && *letter != '-') {
            values.push(value(letter).ok_or(RecoveryCodeError::Symbol(letter))?);
        }
        let Some((&check, symbols)) = values.split_last() else {
            return Err(RecoveryCodeError::Length(0));
        };
        if symbols.len() != SYMBOLS {
            return Err(RecoveryCodeError::Length(values.len()));
        }
        let mut bytes = Zeroizing::new([0; RECOVERY_CODE]);
        for (index, &symbol) in symbols.iter().enumerate() {
            if symbol >= 32 {
                return Err(RecoveryCodeError::Check);
            }
            for bit in 0..5 {
                let at = index * 5 + bit;
                bytes[at / 8] |= (symbol >> (4 - bit) & 1) << (7 - at % 8);
            }
        }
        let code = Self(bytes);
        if code.check() == usize::from(check) { Ok(code) } else { Err(RecoveryCodeError::Check) }
    }

    /// Derives the keys of the user.
    pub fn derive(&self) -> UserKeys {
        UserKeys::derive(self.0.as_slice())
    }

    /// Five bits, from the highest one on.
    fn symbol(&self, index: usize) -> u8 {
        (0..5).fold(0, |symbol, bit| {
            let at = index * 5 + bit;
            symbol << 1 | (self.0[at / 8] >> (7 - at % 8) & 1)
        })
    }

    /// The code as a number, modulo 37. It differs for every single wrong symbol and for every two
    /// neighbours that are swapped.
    fn check(&self) -> usize {
        self.0.iter().fold(0, |rest, byte| (rest * 256 + usize::from(*byte)) % ALPHABET.len())
    }
}

fn value(letter: char) -> Option<u8> {
    let letter = match letter.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        letter => letter,
    };
    let index = ALPHABET.iter().position(|&symbol| char::from(symbol) == letter)?;
    u8::try_from(index).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code() -> RecoveryCode {
        RecoveryCode::new(std::array::from_fn(|at| u8::try_from(at * 13).unwrap()))
    }

    #[test]
    fn code_is_read_however_it_is_typed() {
        let text = code().write();
        assert_eq!(*text, "006H-M9SM-8575-PT3N-GA7S-SADP-RF8D-VTQQ-G");
        let typed = text.to_lowercase().replace('-', " ").replace('0', "o").replace('1', "l");
        for text in [text.as_str(), &typed, &text.replace('-', "")] {
            assert_eq!(RecoveryCode::read(text), Ok(code()), "{text}");
        }
        assert_eq!(format!("{:?}", code()), "RecoveryCode(..)");
    }

    #[test]
    fn single_mistakes_are_noticed() {
        let text: Vec<char> = code().write().replace('-', "").chars().collect();
        for at in 0..text.len() {
            for &symbol in ALPHABET {
                let mut changed = text.clone();
                changed[at] = char::from(symbol);
                if changed != text {
                    let changed: String = changed.iter().collect();
                    assert_eq!(RecoveryCode::read(&changed), Err(RecoveryCodeError::Check));
                }
            }
            let mut swapped = text.clone();
            swapped.swap(at, (at + 1).min(SYMBOLS));
            if swapped != text {
                let swapped: String = swapped.iter().collect();
                assert_eq!(RecoveryCode::read(&swapped), Err(RecoveryCodeError::Check));
            }
            let mut shorter = text.clone();
            shorter.remove(at);
            let shorter: String = shorter.iter().collect();
            assert_eq!(RecoveryCode::read(&shorter), Err(RecoveryCodeError::Length(SYMBOLS)));
        }
        assert_eq!(RecoveryCode::read("AB!"), Err(RecoveryCodeError::Symbol('!')));
        assert_eq!(RecoveryCode::read(" - "), Err(RecoveryCodeError::Length(0)));
    }

    proptest! {
        #[test]
        fn every_code_is_read_back(bytes in any::<[u8; RECOVERY_CODE]>()) {
            let code = RecoveryCode::new(bytes);
            prop_assert_eq!(RecoveryCode::read(&code.write()), Ok(code));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in any::<String>()) {
            let _ = RecoveryCode::read(&text);
        }
    }
}
