//! Decodes bytes to text. A character that is cut between two pieces waits for the rest.

/// Holds the start of a cut character.
#[derive(Clone, Debug, Default)]
pub(crate) struct Utf8Decoder {
    held: [u8; 4],
    length: usize,
}

impl Utf8Decoder {
    /// Decodes the next bytes up to the last complete character. Each invalid sequence becomes one
    /// replacement character.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut text: impl FnMut(&str)) {
        while self.length > 0 && !bytes.is_empty() {
            self.held[self.length] = bytes[0];
            self.length += 1;
            bytes = &bytes[1..];
            match std::str::from_utf8(&self.held[..self.length]) {
                Ok(character) => {
                    text(character);
                    self.length = 0;
                }
                Err(error) => {
                    if let Some(broken) = error.error_len() {
                        // The last byte broke the sequence and may start another one.
                        text(REPLACEMENT);
                        let rest = self.held;
                        let length = self.length;
                        self.length = 0;
                        self.decode(&rest[broken..length], &mut text);
                    }
                }
            }
        }
        self.decode(bytes, &mut text);
    }

    fn decode(&mut self, mut bytes: &[u8], text: &mut impl FnMut(&str)) {
        loop {
            match std::str::from_utf8(bytes) {
                Ok("") => return,
                Ok(whole) => return text(whole),
                Err(error) => {
                    let (good, rest) = bytes.split_at(error.valid_up_to());
                    if let Ok(good) = std::str::from_utf8(good)
                        && !good.is_empty()
                    {
                        text(good);
                    }
                    match error.error_len() {
                        Some(broken) => {
                            text(REPLACEMENT);
                            bytes = &rest[broken..];
                        }
                        None => {
                            self.held[..rest.len()].copy_from_slice(rest);
                            self.length = rest.len();
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Ends the stream. An incomplete character becomes a replacement character.
    pub(crate) fn finish(&mut self, mut text: impl FnMut(&str)) {
        if std::mem::take(&mut self.length) > 0 {
            text(REPLACEMENT);
        }
    }
}

const REPLACEMENT: &str = "\u{fffd}";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> String {
        let mut all = String::new();
        let mut decoder = Utf8Decoder::default();
        for piece in pieces {
            decoder.push(piece, |text| all.push_str(text));
        }
        decoder.finish(|text| all.push_str(text));
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn splits_do_not_change_the_text(
            bytes in prop_oneof![
                any::<String>().prop_map(String::into_bytes),
                proptest::collection::vec(prop_oneof![Just(0xe2u8), Just(0x82), Just(0xf0), Just(0x9f), Just(0xff), Just(b'a'), any::<u8>()], 0..12),
            ],
            cut in 0usize..40,
        ) {
            let expected = String::from_utf8_lossy(&bytes).into_owned();
            let cut = cut.min(bytes.len());
            prop_assert_eq!(read(&[&bytes[..cut], &bytes[cut..]]), expected.clone());
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(read(&single), expected);
        }
    }
}
