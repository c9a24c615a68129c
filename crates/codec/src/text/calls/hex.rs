//! Numbers in the `\uXXXX` escapes of JSON and Python.

/// A number in hexadecimal digits at the start of a text.
pub(super) enum Hex {
    Code(u32),
    /// A byte is no digit.
    No,
    /// More digits are needed.
    Partial,
}

/// Reads this many digits, eight at most.
pub(super) fn read_hex(text: &[u8], digits: usize) -> Hex {
    let mut code: u32 = 0;
    for index in 0..digits {
        let Some(byte) = text.get(index) else {
            return Hex::Partial;
        };
        let Some(digit) = char::from(*byte).to_digit(16) else {
            return Hex::No;
        };
        code = code << 4 | digit;
    }
    Hex::Code(code)
}

/// Reads the escape of the second half of a surrogate pair.
pub(super) fn read_low_surrogate(text: &[u8]) -> Hex {
    let Some(digits) = text.strip_prefix(b"\\u") else {
        return match b"\\u".starts_with(text) {
            true => Hex::Partial,
            false => Hex::No,
        };
    };
    match read_hex(digits, 4) {
        Hex::Code(code) if !(0xdc00..=0xdfff).contains(&code) => Hex::No,
        read => read,
    }
}
