//! Finds where text may be cut: after a sentence, after a paragraph, or at a bracket or quote in
//! JSON. The pacer decides how long text is held.
//!
//! Each byte is examined once, in the piece it arrives in. A few bits of state remember what is
//! needed from earlier pieces. So sentences and paragraphs do not depend on how the text was cut.

/// Finds cuts in text that arrives in pieces.
#[derive(Clone, Debug)]
pub(super) enum Boundaries {
    Sentence(Sentence),
    Paragraph(Paragraph),
    Json(Json),
}

impl Boundaries {
    /// Reports the cuts in the next piece, in rising order. A cut at 0 separates the piece from the
    /// text before it.
    pub(super) fn find(&mut self, piece: &str, cut: &mut dyn FnMut(usize)) {
        match self {
            Self::Sentence(sentence) => sentence.find(piece, cut),
            Self::Paragraph(paragraph) => paragraph.find(piece, cut),
            Self::Json(json) => json.find(piece, cut),
        }
    }

    /// Held text was released in the middle of a block. A sentence restarts then. Whether JSON is
    /// inside a string does not change.
    pub(super) fn restart(&mut self) {
        match self {
            Self::Sentence(sentence) => *sentence = Sentence::default(),
            Self::Paragraph(paragraph) => *paragraph = Paragraph::default(),
            Self::Json(_) => {}
        }
    }
}

/// The position within a sentence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sentence {
    /// Only white space so far: there is no sentence to end yet.
    #[default]
    Before,
    /// Only digits so far. A full stop after them numbers a list item.
    Number,
    Words,
    /// After a stop. It ends the sentence if white space follows.
    Stop,
    /// After a stop of a script that has no white space between sentences.
    WideStop,
    /// In the white space after the sentence. All of it belongs to the sentence.
    After,
}

impl Sentence {
    fn find(&mut self, piece: &str, cut: &mut dyn FnMut(usize)) {
        for (at, character) in piece.char_indices() {
            let (next, is_cut) = self.next(character);
            if is_cut {
                cut(at);
            }
            *self = next;
        }
    }

    /// The state after a character, and whether there is a cut before it.
    fn next(self, character: char) -> (Self, bool) {
        let next = match character {
            '.' | '!' | '?' | '…' | '؟' | '।' => Self::Stop,
            '。' | '！' | '？' | '｡' => Self::WideStop,
            '0'..='9' if self != Self::Words => Self::Number,
            _ if character.is_whitespace() => Self::Before,
            _ => Self::Words,
        };
        match (self, next) {
            (Self::Before, next) => (next, false),
            (Self::Number, Self::Stop) if character == '.' => (Self::Words, false),
            (Self::Number | Self::Words, Self::Before) if character == '\n' => (Self::After, false),
            (Self::Number | Self::Words, Self::Before) => (Self::Words, false),
            (Self::Number | Self::Words, next) => (next, false),
            (Self::Stop | Self::WideStop | Self::After, Self::Before) => (Self::After, false),
            // `?!` and `。”`: the wide stop wins.
            (Self::WideStop, Self::Stop) => (Self::WideStop, false),
            (Self::Stop | Self::WideStop, Self::Stop | Self::WideStop) => (next, false),
            (Self::Stop | Self::WideStop, _) if is_closing(character) => (self, false),
            // `3.14`, `main.rs`: not a stop after all.
            (Self::Stop, _) => (Self::Words, false),
            (Self::WideStop | Self::After, next) => (next, true),
        }
    }
}

/// Characters that may follow a stop before the white space, including Markdown emphasis.
fn is_closing(character: char) -> bool {
    matches!(
        character,
        '"' | '\''
            | ')'
            | ']'
            | '}'
            | '*'
            | '_'
            | '`'
            | '”'
            | '’'
            | '»'
            | '›'
            | '）'
            | '］'
            | '】'
            | '」'
            | '』'
            | '》'
            | '〉'
    )
}

/// The position within a paragraph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Paragraph {
    /// Only white space so far: there is no paragraph to end yet.
    #[default]
    Before,
    Lines,
    /// In a line that is blank so far.
    NewLine,
    /// After a blank line. Further line breaks belong to the paragraph, indentation does not.
    After,
}

impl Paragraph {
    fn find(&mut self, piece: &str, cut: &mut dyn FnMut(usize)) {
        // None of these bytes can be part of a longer character.
        for (at, byte) in piece.bytes().enumerate() {
            *self = match (*self, byte) {
                (Self::Lines, b'\n') => Self::NewLine,
                (Self::NewLine, b'\n') => Self::After,
                (Self::After, b'\n' | b'\r') => Self::After,
                (Self::NewLine, b' ' | b'\t' | b'\r') => Self::NewLine,
                (Self::After, b' ' | b'\t') => {
                    cut(at);
                    Self::Before
                }
                (Self::After, _) => {
                    cut(at);
                    Self::Lines
                }
                (Self::Before, b' ' | b'\t' | b'\r' | b'\n') => Self::Before,
                (Self::Before | Self::Lines | Self::NewLine, _) => Self::Lines,
            };
        }
    }
}

/// The position within JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Json {
    #[default]
    Outside,
    InString,
    /// In a string, after a backslash.
    Escaped,
}

impl Json {
    /// Reports only the last cut, so one piece never becomes more deltas.
    fn find(&mut self, piece: &str, cut: &mut dyn FnMut(usize)) {
        let bytes = piece.as_bytes();
        let (mut at, mut last) = (0, None);
        while at < bytes.len() {
            match self {
                Self::Outside => {
                    match bytes[at] {
                        b'{' | b'}' | b'[' | b']' => last = Some(at + 1),
                        b'"' => {
                            last = Some(at + 1);
                            *self = Self::InString;
                        }
                        _ => {}
                    }
                    at += 1;
                }
                Self::InString => {
                    // Most arguments are strings, and most of these are long.
                    let Some(found) = memchr::memchr2(b'"', b'\\', &bytes[at..]) else {
                        break;
                    };
                    at += found + 1;
                    if bytes[at - 1] == b'"' {
                        last = Some(at);
                        *self = Self::Outside;
                    } else {
                        *self = Self::Escaped;
                    }
                }
                Self::Escaped => {
                    at += 1;
                    *self = Self::InString;
                }
            }
        }
        if let Some(last) = last {
            cut(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts between the cuts, if the text arrives in pieces of this many characters.
    fn cut(mut boundaries: Boundaries, text: &str, characters: usize) -> Vec<String> {
        let mut parts = vec![String::new()];
        let all: Vec<char> = text.chars().collect();
        for piece in all.chunks(characters) {
            let piece: String = piece.iter().collect();
            let mut from = 0;
            boundaries.find(&piece, &mut |at| {
                parts.last_mut().unwrap().push_str(&piece[from..at]);
                parts.push(String::new());
                from = at;
            });
            parts.last_mut().unwrap().push_str(&piece[from..]);
        }
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// Checks that the cuts are at the bars, for pieces of any size.
    fn check(boundaries: &Boundaries, with_bars: &str) {
        let expected: Vec<&str> = with_bars.split('|').collect();
        for characters in 1..=with_bars.len().max(1) {
            let found = cut(boundaries.clone(), &with_bars.replace('|', ""), characters);
            assert_eq!(found, expected, "pieces of {characters}");
        }
    }

    #[test]
    fn sentences_end_at_stops_and_line_ends() {
        let sentences = Boundaries::Sentence(Sentence::default());
        for with_bars in [
            "One. |Two! |Three? |Four… |Five",
            "Really?! |Yes... |Well",
            "Pi is 3.14 and e is 2.718. |So",
            "Open main.rs, or www.example.com/a?b=c. |Then",
            "He said \"Stop.\" |She went (far away.) |It was **done.** |‘Good.’ |End",
            "a line\n|another\n\n|- an item\n  |- one below",
            "Full.   \n\n \t |Then.\r\n|More",
            "\n\n  Leading white space is not a sentence. |Right",
            "1. First. |2. Second: 3. |10. Third",
            "一つ。|二つ！|「三つ。」|四つ？！|五つ",
            "你好。 |世界",
            "no.\u{a0}|break",
            "... |and",
            "a. ",
            " ",
        ] {
            check(&sentences, with_bars);
        }
    }

    #[test]
    fn paragraphs_end_after_blank_lines() {
        let paragraphs = Boundaries::Paragraph(Paragraph::default());
        for with_bars in [
            "one\ntwo\n\n|three\n\n\n\n|four\n",
            "one\r\ntwo\r\n\r\n|three\r\n\r\n\r\n|four",
            "one\n \t \n|two",
            "one\n\n|    code\n\n|  more",
            "\n\none\n\n|\u{e4}two",
            "one\n two",
            "one\n\n",
            "\n\n\n",
        ] {
            check(&paragraphs, with_bars);
        }
    }

    #[test]
    fn json_is_cut_at_brackets_and_quotes_outside_strings() {
        let json = Boundaries::Json(Json::default());
        for (text, end) in [
            (r#"{"a": 12"#, r#"{"a""#),
            (r#"{"a": "b{c}"#, r#"{"a": ""#),
            (r#"{"a": "b\"c"#, r#"{"a": ""#),
            (r#"{"a": "b\\" "#, r#"{"a": "b\\""#),
            (r#"{"a": [1, {"b": true}], "#, r#"{"a": [1, {"b": true}]"#),
            (r#"{"ä": "ö{"}"#, r#"{"ä": "ö{"}"#),
        ] {
            for characters in 1..=text.len() {
                let parts = cut(json.clone(), text, characters);
                let tail = &text[end.len()..];
                let held = if tail.is_empty() { "" } else { parts.last().unwrap() };
                assert_eq!(held, tail, "{text} in pieces of {characters}");
            }
            let whole = cut(json.clone(), text, text.len());
            assert_eq!(whole[0], end, "a piece is cut once, as late as can be");
        }
    }
}
