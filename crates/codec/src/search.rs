//! Byte search that is fast for short and for long text.
//!
//! Streams arrive in pieces of a few bytes. For those, the set-up of a vector search costs more
//! than it saves, so the first eight bytes are compared as one number.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Finds the first position of a byte.
#[inline]
pub(crate) fn find_byte(wanted: u8, bytes: &[u8]) -> Option<usize> {
    let Some((word, rest)) = bytes.split_first_chunk::<8>() else {
        return bytes.iter().position(|byte| *byte == wanted);
    };
    match first_flag(flag_equal(wanted, u64::from_le_bytes(*word))) {
        None if rest.is_empty() => None,
        None => memchr::memchr(wanted, rest).map(|at| at + 8),
        found => found,
    }
}

/// Finds the first byte at or after `at` that is special inside a JSON string: a quote, a backslash
/// or a control character. Returns the length of `bytes` if there is none.
pub(crate) fn special(bytes: &[u8], at: usize) -> usize {
    special_or(b'"', bytes, at)
}

/// Like [`special`], with one more special byte.
// Always inlined, so that `special` does not compare with a fourth byte.
#[inline(always)]
pub(crate) fn special_or(also: u8, bytes: &[u8], at: usize) -> usize {
    let Some(rest) = bytes.get(at..) else {
        return bytes.len();
    };
    at + match rest.split_first_chunk::<8>() {
        None => special_one_by_one(also, rest),
        Some((word, after)) => match first_flag(flag_special(also, *word)) {
            Some(found) => found,
            None if after.is_empty() => 8,
            None => 8 + special_in_blocks(also, after),
        },
    }
}

fn special_in_blocks(also: u8, bytes: &[u8]) -> usize {
    let mut rest = bytes;
    // The compiler turns these blocks into vector code.
    while let Some((block, after)) = rest.split_first_chunk::<32>() {
        let hit = |hit, byte: &u8| hit | is_special(also, *byte);
        if block.iter().fold(false, hit) {
            break;
        }
        rest = after;
    }
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        if let Some(found) = first_flag(flag_special(also, *word)) {
            return bytes.len() - rest.len() + found;
        }
        rest = after;
    }
    bytes.len() - rest.len() + special_one_by_one(also, rest)
}

fn special_one_by_one(also: u8, bytes: &[u8]) -> usize {
    let found = bytes.iter().position(|byte| is_special(also, *byte));
    found.unwrap_or(bytes.len())
}

fn is_special(also: u8, byte: u8) -> bool {
    // No branches, so that the compiler can use vector code.
    (byte == b'"') | (byte == b'\\') | (byte < 0x20) | (byte == also)
}

/// Sets the high bit of each byte in the word that is special.
fn flag_special(also: u8, word: [u8; 8]) -> u64 {
    let word = u64::from_le_bytes(word);
    let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
    flag_equal(b'"', word) | flag_equal(b'\\', word) | flag_equal(also, word) | control
}

/// Sets the high bit of each byte in the word that equals `byte`.
fn flag_equal(byte: u8, word: u64) -> u64 {
    let difference = word ^ (ONES * u64::from(byte));
    difference.wrapping_sub(ONES) & !difference & HIGH
}

/// Returns the position of the lowest flag. Only that flag is exact: a borrow can set flags above
/// a real match, never below it.
fn first_flag(flags: u64) -> Option<usize> {
    (flags != 0).then(|| (flags.trailing_zeros() / 8) as usize)
}

/// The positions of all special bytes.
///
/// The bytes are compared in blocks whose borders do not depend on what was found, so the processor
/// compares the next block before it has handled the last position.
pub(crate) struct Specials<'a> {
    rest: &'a [u8],
    /// Where `rest` begins.
    next: usize,
    /// One bit for each special byte of the block before `rest`.
    found: u64,
}

impl<'a> Specials<'a> {
    /// Starts at a position.
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { rest: bytes.get(at..).unwrap_or_default(), next: at, found: 0 }
    }
}

impl Iterator for Specials<'_> {
    type Item = usize;

    // Always inlined: a call for each position doubles the time for a text with many escapes.
    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        while self.found == 0 {
            if let Some((block, after)) = self.rest.split_first_chunk() {
                (self.found, self.rest) = (find_specials(block), after);
            } else if self.rest.is_empty() {
                return None;
            } else {
                let mut padded = [b' '; BLOCK];
                padded[..self.rest.len()].copy_from_slice(self.rest);
                (self.found, self.rest) = (find_specials(&padded), &[]);
            }
            self.next += BLOCK;
        }
        let at = self.next - BLOCK + self.found.trailing_zeros() as usize;
        self.found &= self.found - 1;
        Some(at)
    }
}

/// As many bytes as a number has bits.
const BLOCK: usize = 64;

/// Sets one bit for each special byte. Unlike the flags of [`flag_special`], each bit is exact.
#[inline]
fn find_specials(block: &[u8; BLOCK]) -> u64 {
    // The compiler turns this into vector code.
    let flags = block.map(|byte| u8::from(is_special(b'"', byte)));
    let (words, _) = flags.as_chunks::<8>();
    words.iter().enumerate().fold(0, |found, (index, word)| {
        // Gathers the flags in one byte.
        let flags = u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        found | flags << (8 * index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_all_special_bytes() {
        let all: Vec<u8> = (0..=u8::MAX).chain((0..=u8::MAX).rev()).chain(*b"\"\"ab\\").collect();
        for start in 0..all.len() {
            let special = |at: &usize| is_special(b'"', all[*at]);
            let expected: Vec<usize> = (start..all.len()).filter(special).collect();
            assert_eq!(Specials::new(&all, start).collect::<Vec<_>>(), expected);
        }
        assert_eq!(Specials::new(b"a", 2).next(), None);
    }

    #[test]
    fn finds_a_byte_at_every_position() {
        for length in 0..100 {
            for at in 0..length {
                for byte in [b'"', b'\\', 0, 0x1f, b'\n', b'<'] {
                    let mut text = vec![b'a'; length];
                    text[at] = byte;
                    assert_eq!(find_byte(byte, &text), Some(at));
                    assert_eq!(special_or(b'<', &text, 0), at);
                    assert_eq!(special_or(b'<', &text, at + 1), length);
                    let expected = if byte == b'<' { length } else { at };
                    assert_eq!(special(&text, 0), expected);
                }
            }
            let text = vec![0xf0u8; length];
            assert_eq!(special(&text, 0), length);
            assert_eq!(special_or(b'<', &text, 0), length);
            assert_eq!(find_byte(b'p', &text), None);
        }
    }

    #[test]
    fn finds_the_first_of_several_matches() {
        // Neighbours that a borrow could flag: one above, one below, and with the highest bit set.
        for text in ["\"#!<=;\u{bc}", "<<=\"\"##\u{bc}x<", "aaaaaaaa\"#\"<"] {
            let bytes = text.as_bytes();
            let expected = bytes.iter().position(|byte| *byte == b'<');
            assert_eq!(find_byte(b'<', bytes), expected, "{text}");
            let expected = bytes.iter().position(|byte| b"\"<".contains(byte));
            assert_eq!(Some(special_or(b'<', bytes, 0)), expected, "{text}");
        }
    }
}
