//! Splits Rust source into tokens, as far as the rules need it: names, texts, comments and
//! punctuation. It knows nothing about meaning.

/// One token and the line it begins in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) line: usize,
    pub(crate) kind: Kind<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// An identifier or a keyword.
    Name(&'a str),
    /// A string literal, without quotes, as it is written.
    Text(&'a str),
    /// A comment, with its slashes.
    Comment(&'a str),
    Punctuation(char),
}

/// All tokens of a source, except numbers, characters and lifetimes.
pub(crate) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { source, at: 0, line: 1 };
    let mut tokens = Vec::new();
    while lexer.at < source.len() {
        let line = lexer.line;
        if let Some(kind) = lexer.next() {
            tokens.push(Token { line, kind });
        }
    }
    tokens
}

/// The tokens outside of tests: items under `#[cfg(test)]` and test functions are left out.
pub(crate) fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match test_attribute(&tokens[at..]) {
            Some(length) => at += length + item_length(&tokens[at + length..]),
            None => {
                kept.push(tokens[at]);
                at += 1;
            }
        }
    }
    kept
}

/// The length of `#[cfg(test)]`, `#[test]` or `#[tokio::test(...)]` at the beginning.
fn test_attribute(tokens: &[Token<'_>]) -> Option<usize> {
    let [first, second, ..] = tokens else { return None };
    if first.kind != Kind::Punctuation('#') || second.kind != Kind::Punctuation('[') {
        return None;
    }
    let end = 1 + closing(&tokens[1..], '[', ']')?;
    let names: Vec<&str> = names(&tokens[2..end]).collect();
    let is_test = match names.as_slice() {
        ["cfg", "test"] | ["test", ..] => true,
        [path, "test", ..] => *path == "tokio",
        _ => false,
    };
    is_test.then_some(end + 1)
}

/// The number of tokens until the item at the beginning ends, with a `;` or a block.
fn item_length(tokens: &[Token<'_>]) -> usize {
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Punctuation(';') => return index + 1,
            Kind::Punctuation('{') => {
                let length = closing(&tokens[index..], '{', '}');
                return length.map_or(tokens.len(), |length| index + length + 1);
            }
            _ => {}
        }
    }
    tokens.len()
}

/// The position of the bracket that closes the one at the beginning.
pub(crate) fn closing(tokens: &[Token<'_>], open: char, close: char) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        if token.kind == Kind::Punctuation(open) {
            depth += 1;
        } else if token.kind == Kind::Punctuation(close) {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                return Some(index);
            }
        }
    }
    None
}

/// The names among these tokens.
pub(crate) fn names<'a>(tokens: &[Token<'a>]) -> impl Iterator<Item = &'a str> {
    tokens.iter().filter_map(|token| match token.kind {
        Kind::Name(name) => Some(name),
        _ => None,
    })
}

/// Whether a file holds nothing but tests or benches, by its path.
pub(crate) fn is_test_file(path: &str) -> bool {
    ["/tests/", "/tests.rs", "/benches/"].iter().any(|part| path.contains(part))
        || path.ends_with("_tests.rs")
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    /// Takes this many bytes and counts their lines.
    fn take(&mut self, length: usize) -> &'a str {
        let taken = &self.rest()[..length];
        self.line += taken.matches('\n').count();
        self.at += length;
        taken
    }

    fn next(&mut self) -> Option<Kind<'a>> {
        let rest = self.rest();
        let first = rest.chars().next()?;
        if rest.starts_with("//") {
            let length = rest.find('\n').unwrap_or(rest.len());
            return Some(Kind::Comment(self.take(length)));
        }
        if rest.starts_with("/*") {
            let length = rest.find("*/").map_or(rest.len(), |end| end + 2);
            return Some(Kind::Comment(self.take(length)));
        }
        if first == '"' {
            return Some(self.text(1));
        }
        if let Some(hashes) = raw_string(rest) {
            return Some(self.raw_text(hashes));
        }
        if rest.starts_with("b\"") || rest.starts_with("c\"") {
            return Some(self.text(2));
        }
        if first == '\'' {
            let length = character_length(rest);
            self.take(length);
            return None;
        }
        if first.is_alphabetic() || first == '_' {
            let length = rest.find(|next: char| !is_word(next)).unwrap_or(rest.len());
            return Some(Kind::Name(self.take(length)));
        }
        if first.is_ascii_digit() {
            let length = rest.find(|next: char| !is_word(next)).unwrap_or(rest.len());
            self.take(length);
            return None;
        }
        self.take(first.len_utf8());
        (!first.is_whitespace()).then_some(Kind::Punctuation(first))
    }

    /// A string after its opening, which has this length.
    fn text(&mut self, opening: usize) -> Kind<'a> {
        self.take(opening);
        let rest = self.rest();
        let mut escaped = false;
        let end = rest.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let text = self.take(end.unwrap_or(rest.len()));
        self.take(usize::from(end.is_some()));
        Kind::Text(text)
    }

    fn raw_text(&mut self, hashes: usize) -> Kind<'a> {
        let opening = self.rest().find('"').map_or(0, |quote| quote + 1);
        self.take(opening);
        let rest = self.rest();
        let close = format!("\"{}", "#".repeat(hashes));
        let end = rest.find(&close);
        let text = self.take(end.unwrap_or(rest.len()));
        self.take(end.map_or(0, |_| close.len()));
        Kind::Text(text)
    }
}

/// The number of hashes if a raw string begins here.
fn raw_string(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// The length of a character literal, or of the quote that begins a lifetime.
fn character_length(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    match characters.next() {
        Some((_, '\\')) => {
            // The escaped character may be a quote itself.
            rest.char_indices().skip(3).find(|(_, next)| *next == '\'').map_or(2, |(at, _)| at + 1)
        }
        Some(_) => match characters.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}

pub(crate) fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<Kind<'_>> {
        tokens(source).into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn texts_and_comments_are_not_code() {
        assert_eq!(
            kinds("f(\"a \\\" // b\", r#\"c \"d\"#, b\"e\") // g \"h\""),
            [
                Kind::Name("f"),
                Kind::Punctuation('('),
                Kind::Text("a \\\" // b"),
                Kind::Punctuation(','),
                Kind::Text("c \"d"),
                Kind::Punctuation(','),
                Kind::Text("e"),
                Kind::Punctuation(')'),
                Kind::Comment("// g \"h\""),
            ]
        );
    }

    #[test]
    fn characters_and_lifetimes_open_no_text() {
        assert_eq!(
            names(&tokens("'\"' a '\\'' b '\\u{1}' c")).collect::<Vec<_>>(),
            ["a", "b", "c"]
        );
        assert_eq!(names(&tokens("&'a str '{' d")).collect::<Vec<_>>(), ["a", "str", "d"]);
    }

    #[test]
    fn lines_are_counted_inside_texts() {
        let lines: Vec<usize> =
            tokens("a\n\"b\nc\" d /* e\n */ f").iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 3, 3, 4]);
    }

    #[test]
    fn tests_are_left_out() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests;\nfn b() {}\n#[tokio::test(x = 1)]\n\
            async fn c() { d() }\n#[cfg(test)]\nmod more { fn e() {} }\nfn f() {}";
        let all = tokens(source);
        let left = without_tests(&all);
        assert_eq!(names(&left).collect::<Vec<_>>(), ["fn", "a", "fn", "b", "fn", "f"]);
    }
}
