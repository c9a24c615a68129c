//! Where text may be cut: behind a sentence, behind a paragraph, at a place in JSON where something
//! begins or ends. What is held and for how long is the stage's matter, not ours.
//!
//! Each byte is looked at once, in the piece it came in; what must be known of earlier pieces is a
//! few bits of state. Sentences and paragraphs are therefore the same however the text was cut into
//! pieces.

/// Looks for places to cut in text that arrives in pieces.
#[derive(Clone, Debug)]
pub(super) enum Boundaries {
    Sentence(Sentence),
    Paragraph(Paragraph),
    Json(Json),
}

impl Boundaries {
    /// Tells where to cut the next piece, in rising order. A cut at 0 separates it from what came
    /// before it.
    pub(super) fn find(&mut self, piece: &str, cut: &mut dyn FnMut(usize)) {
        match self {
            Self::Sentence(sentence) => sentence.find(piece, cut),
            Self::Paragraph(paragraph) => paragraph.find(piece, cut),
            Self::Json(json) => json.find(piece, cut),
        }
    }

    /// All that came before has been let go in the middle of a block. A sentence begins anew then;
    /// whether JSON stands in a string does not change.
    pub(super) fn let_go(&mut self) {
        match self {
            Self::Sentence(sentence) => *sentence = Sentence::default(),
            Self::Paragraph(paragraph) => *paragraph = Paragraph::default(),
            Self::Json(_) => {}
        }
    }
}

/// How far a sentence has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sentence {
    /// Nothing but white space: no sentence to end yet.
    #[default]
    Before,
    /// Nothing but digits. A full stop behind them numbers an item.
    Number,
    Words,
    /// Behind a stop, which ends the sentence if white space follows.
    Stop,
    /// Behind a stop of a script that writes no white space between sentences.
    WideStop,
    /// In the white space behind the sentence, all of which belongs to it.
    Behind,
}

impl Sentence {
    fn find(&mut self, piece: &str, cut: &mut dyn FnMut(usize)) {
        for (at, letter) in piece.char_indices() {
            let next = self.next(letter);
            if next.1 {
                cut(at);
            }
            *self = next.0;
        }
    }

    /// The state behind a letter, and whether there is a cut before the letter.
    fn next(self, letter: char) -> (Self, bool) {
        let begun = match letter {
            '.' | '!' | '?' | '…' | '؟' | '।' => Self::Stop,
            '。' | '！' | '？' | '｡' => Self::WideStop,
            '0'..='9' if self != Self::Words => Self::Number,
            _ if letter.is_whitespace() => Self::Before,
            _ => Self::Words,
        };
        match (self, begun) {
            (Self::Before, begun) => (begun, false),
            (Self::Number, Self::Stop) if letter == '.' => (Self::Words, false),
            (Self::Number | Self::Words, Self::Before) if letter == '\n' => (Self::Behind, false),
            (Self::Number | Self::Words, Self::Before) => (Self::Words, false),
            (Self::Number | Self::Words, begun) => (begun, false),
            (Self::Stop | Self::WideStop | Self::Behind, Self::Before) => (Self::Behind, false),
            // `?!` and `。”`: as wide as the widest of them.
            (Self::WideStop, Self::Stop) => (Self::WideStop, false),
            (Self::Stop | Self::WideStop, Self::Stop | Self::WideStop) => (begun, false),
            (Self::Stop | Self::WideStop, _) if closes(letter) => (self, false),
            // `3.14`, `main.rs`: no stop after all.
            (Self::Stop, _) => (Self::Words, false),
            (Self::WideStop | Self::Behind, begun) => (begun, true),
        }
    }
}

/// What may stand between a stop and the white space behind it; emphasis of Markdown too.
fn closes(letter: char) -> bool {
    matches!(
        letter,
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

/// How far a paragraph has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Paragraph {
    /// Nothing but white space: no paragraph to end yet.
    #[default]
    Before,
    Lines,
    /// In a line that has been blank so far.
    NewLine,
    /// Behind a blank line. Further line breaks belong to the paragraph, an indentation does not.
    Behind,
}

impl Paragraph {
    fn find(&mut self, piece: &str, cut: &mut dyn FnMut(usize)) {
        // No byte that counts here is part of a longer character.
        for (at, byte) in piece.bytes().enumerate() {
            *self = match (*self, byte) {
                (Self::Lines, b'\n') => Self::NewLine,
                (Self::NewLine, b'\n') => Self::Behind,
                (Self::Behind, b'\n' | b'\r') => Self::Behind,
                (Self::NewLine, b' ' | b'\t' | b'\r') => Self::NewLine,
                (Self::Behind, b' ' | b'\t') => {
                    cut(at);
                    Self::Before
                }
                (Self::Behind, _) => {
                    cut(at);
                    Self::Lines
                }
                (Self::Before, b' ' | b'\t' | b'\r' | b'\n') => Self::Before,
                (Self::Before | Self::Lines | Self::NewLine, _) => Self::Lines,
            };
        }
    }
}

/// Where in JSON the text stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Json {
    #[default]
    Outside,
    InString,
    /// In a string, behind a backslash.
    Escaped,
}

impl Json {
    /// Tells the last place only: one piece never becomes more than one.
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
                    // Most of the arguments are strings, and most of these are long.
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

    /// What comes between the cuts, if the text arrives in pieces of so many letters.
    fn cut(mut boundaries: Boundaries, text: &str, letters: usize) -> Vec<String> {
        let mut parts = vec![String::new()];
        let all: Vec<char> = text.chars().collect();
        for piece in all.chunks(letters) {
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

    /// The bars are where the cuts are, for pieces of any size.
    fn check(boundaries: &Boundaries, marked: &str) {
        let expected: Vec<&str> = marked.split('|').collect();
        for letters in 1..=marked.len().max(1) {
            let found = cut(boundaries.clone(), &marked.replace('|', ""), letters);
            assert_eq!(found, expected, "pieces of {letters}");
        }
    }

    #[test]
    fn sentences_end_where_people_end_them() {
        let sentences = Boundaries::Sentence(Sentence::default());
        for marked in [
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
            check(&sentences, marked);
        }
    }

    #[test]
    fn paragraphs_end_behind_blank_lines() {
        let paragraphs = Boundaries::Paragraph(Paragraph::default());
        for marked in [
            "one\ntwo\n\n|three\n\n\n\n|four\n",
            "one\r\ntwo\r\n\r\n|three\r\n\r\n\r\n|four",
            "one\n \t \n|two",
            "one\n\n|    code\n\n|  more",
            "\n\none\n\n|\u{e4}two",
            "one\n two",
            "one\n\n",
            "\n\n\n",
        ] {
            check(&paragraphs, marked);
        }
    }

    #[test]
    fn json_is_cut_at_brackets_and_quotes_that_count() {
        let json = Boundaries::Json(Json::default());
        for (text, end) in [
            (r#"{"a": 12"#, r#"{"a""#),
            (r#"{"a": "b{c}"#, r#"{"a": ""#),
            (r#"{"a": "b\"c"#, r#"{"a": ""#),
            (r#"{"a": "b\\" "#, r#"{"a": "b\\""#),
            (r#"{"a": [1, {"b": true}], "#, r#"{"a": [1, {"b": true}]"#),
            (r#"{"ä": "ö{"}"#, r#"{"ä": "ö{"}"#),
        ] {
            for letters in 1..=text.len() {
                let parts = cut(json.clone(), text, letters);
                let behind = &text[end.len()..];
                let held = if behind.is_empty() { "" } else { parts.last().unwrap() };
                assert_eq!(held, behind, "{text} in pieces of {letters}");
            }
            let whole = cut(json.clone(), text, text.len());
            assert_eq!(whole[0], end, "a piece is cut once, as late as can be");
        }
    }
}
