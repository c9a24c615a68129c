//! The token that ends a model's turn. It is a marker only as the last thing of a text.

use super::calls::MAX_FRAMING;
use super::recipe::Recipe;

/// The tokens that may end a text.
#[derive(Debug)]
pub(crate) struct TurnEnds {
    tokens: Vec<&'static str>,
    max_length: usize,
}

impl TurnEnds {
    pub(crate) fn new(recipe: &Recipe) -> Self {
        let formats = recipe.tools.iter().flat_map(|format| format.turn_ends);
        let tokens: Vec<&str> = recipe.turn_ends.iter().chain(formats).copied().collect();
        let max_length = tokens.iter().map(|token| token.len()).max().unwrap_or(0);
        Self { tokens, max_length }
    }

    /// The length of the token at the end of a text, with the white space after it.
    pub(crate) fn length(&self, text: &str) -> usize {
        let trimmed = text.trim_ascii_end();
        let white = text.len() - trimmed.len();
        match self.tokens.iter().find(|token| trimmed.ends_with(**token)) {
            Some(token) if white <= MAX_FRAMING => token.len() + white,
            _ => 0,
        }
    }

    /// The length of a token or the start of one at the end of a text that may continue.
    pub(crate) fn partial_length(&self, text: &str) -> usize {
        if self.tokens.is_empty() {
            return 0;
        }
        let whole = self.length(text);
        if whole > 0 {
            return whole;
        }
        let bytes = text.as_bytes();
        let end = &bytes[bytes.len().saturating_sub(self.max_length)..];
        let is_start = |at: &usize| {
            let mut tokens = self.tokens.iter().map(|token| token.as_bytes());
            tokens.any(|token| token[0] == end[*at] && token.starts_with(&end[*at..]))
        };
        (0..end.len()).find(is_start).map_or(0, |at| end.len() - at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_text_is_a_token() {
        let ends = TurnEnds::new(&Recipe::family("deepseek-v3").unwrap());
        let token = "<｜end▁of▁sentence｜>";
        for (text, partial, whole) in [
            ("", 0, 0),
            ("Hi", 0, 0),
            ("Hi <", 1, 0),
            ("Hi <｜end", 7, 0),
            ("Hi <｜ene", 0, 0),
            ("<<", 1, 0),
        ] {
            assert_eq!((ends.partial_length(text), ends.length(text)), (partial, whole), "{text}");
        }
        for (after, length) in [("", token.len()), (" \n", token.len() + 2), ("x", 0)] {
            let text = format!("Hi.{token}{after}");
            assert_eq!((ends.partial_length(&text), ends.length(&text)), (length, length));
        }
        let white = " ".repeat(MAX_FRAMING + 1);
        assert_eq!(ends.partial_length(&format!("{token}{white}")), 0);
        let none = TurnEnds::new(&Recipe::default());
        assert_eq!((none.partial_length("a <"), none.length("a ")), (0, 0));
    }

    #[test]
    fn a_token_may_contain_its_first_byte_again() {
        let ends = TurnEnds::new(&Recipe::family("minimax-m2").unwrap());
        assert_eq!(ends.partial_length("[e~["), 4);
        assert_eq!(ends.partial_length("[[e~"), 3);
        assert_eq!(ends.partial_length("[e~[e"), 2);
    }
}
