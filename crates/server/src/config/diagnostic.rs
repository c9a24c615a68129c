//! A mistake and how it is told: where, what was found, what was expected, what to do.
//! What counts as a mistake lives with the checks; this file only knows how to say it.

use std::fmt;

use super::document::Spot;
use super::mask;
use super::paths::Source;

/// Longer values and lines are cut; the position says where to look.
const LONGEST_VALUE: usize = 60;
const LONGEST_LINE: usize = 120;

/// Every mistake of one configuration, in the order of their places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

/// One mistake. `Display` shows it over several lines, like a compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Where it stands.
    pub place: Place,
    /// What was found.
    pub message: String,
    /// What should stand there instead.
    pub expected: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    excerpt: Option<Excerpt>,
}

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The file; line and column count from one, columns in characters.
    File {
        /// The file's name as shown in messages.
        name: String,
        /// The line, from one.
        line: usize,
        /// The character in that line, from one.
        column: usize,
    },
    /// An environment variable.
    Variable(String),
    /// A command-line flag.
    Flag(&'static str),
}

/// The line a mistake stands in, keys already starred out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Excerpt {
    text: String,
    width: usize,
}

/// A mistake before it has a place: what a check has to say about a value.
#[derive(Debug)]
pub(super) struct Trouble {
    message: String,
    expected: Option<String>,
    hint: Option<String>,
}

impl Trouble {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), expected: None, hint: None }
    }

    pub(super) fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds "did you mean" where there is a word to mean.
    pub(super) fn meant(self, word: Option<&str>) -> Self {
        match word {
            // Where only one word is right, it has been named already.
            Some(word) if self.expected != Some(one_of([word])) => {
                self.hint(format!("did you mean `{word}`?"))
            }
            _ => self,
        }
    }
}

/// Collects mistakes while reading goes on.
pub(super) struct Report<'a> {
    source: Option<&'a Source>,
    mistakes: Vec<Mistake>,
}

impl<'a> Report<'a> {
    pub(super) fn new(source: Option<&'a Source>) -> Self {
        Self { source, mistakes: Vec::new() }
    }

    pub(super) fn add(&mut self, spot: &Spot, trouble: Trouble) {
        let (place, excerpt) = match spot {
            Spot::File(span) => self.locate(span.start, span.end),
            Spot::Variable(name) => (Place::Variable(name.clone()), None),
            Spot::Flag(name) => (Place::Flag(name), None),
        };
        let Trouble { message, expected, hint } = trouble;
        self.mistakes.push(Mistake { place, message, expected, hint, excerpt });
    }

    /// Takes over what is wrong with a file that this one names.
    pub(super) fn add_all(&mut self, other: Report<'_>) {
        self.mistakes.extend(other.mistakes);
    }

    /// How a message refers to another place: `line 4`, or the variable's name.
    pub(super) fn refer(&self, spot: &Spot) -> String {
        match spot {
            Spot::File(span) => match self.locate(span.start, span.end).0 {
                Place::File { line, .. } => format!("line {line}"),
                Place::Variable(name) => name,
                Place::Flag(name) => name.to_owned(),
            },
            Spot::Variable(name) => name.clone(),
            Spot::Flag(name) => (*name).to_owned(),
        }
    }

    /// The value if there is one and nothing is wrong with it, else everything that is.
    pub(super) fn finish<T>(mut self, value: Option<T>) -> Result<T, Mistakes> {
        self.mistakes.sort_by(|left, right| left.place.cmp(&right.place));
        match value {
            Some(value) if self.mistakes.is_empty() => Ok(value),
            _ => Err(Mistakes(self.mistakes)),
        }
    }

    fn locate(&self, start: usize, end: usize) -> (Place, Option<Excerpt>) {
        let (name, text) = match self.source {
            Some(source) => (source.name.clone(), source.text.as_str()),
            None => (String::new(), ""),
        };
        // A parser may point one past the end, or between two bytes of a character.
        let start = text.floor_char_boundary(start.min(text.len()));
        let end = text.ceil_char_boundary(end.min(text.len()).max(start));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let line = text[line_start..line_end].trim_end_matches('\r');
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        let column = text[line_start..start].trim_start_matches('\u{feff}').chars().count() + 1;
        let place = Place::File { name, line: text[..start].matches('\n').count() + 1, column };
        let width = text[start..end.min(line_end)].trim_end_matches('\r').chars().count().max(1);
        let mut shown: String = mask::line(line)
            .chars()
            .map(|letter| if letter.is_control() && letter != '\t' { '\u{b7}' } else { letter })
            .collect();
        let longest = LONGEST_LINE.max(column + width);
        if let Some((cut, _)) = shown.char_indices().nth(longest) {
            shown.truncate(cut);
            shown.push('…');
        }
        (place, Some(Excerpt { text: shown, width }))
    }
}

/// A value for a message, in backticks: no key, no control characters, not too long.
pub(super) fn shown(value: &str) -> String {
    if mask::looks_secret(value) {
        return "a text that looks like a key".to_owned();
    }
    let mut escaped = String::new();
    for letter in value.chars().take(LONGEST_VALUE) {
        match letter.is_control() {
            true => escaped.extend(letter.escape_default()),
            false => escaped.push(letter),
        }
    }
    let more = if value.chars().count() > LONGEST_VALUE { "…" } else { "" };
    format!("`{escaped}{more}`")
}

/// What to expect where only these words are right.
pub(super) fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.into_iter().collect();
    match words.as_slice() {
        [only] => format!("`{only}`"),
        _ => format!("one of {}", list(words)),
    }
}

/// Words for a message: `a`, `b`, `c`.
pub(super) fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line, column } => write!(formatter, "{name}:{line}:{column}"),
            Self::Variable(name) => write!(formatter, "env {name}"),
            Self::Flag(name) => formatter.write_str(name),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.place, self.message)?;
        let expected = self.expected.as_ref().map(|expected| format!("expected {expected}"));
        let mut remarks = expected.iter().chain(&self.hint);
        if let (Place::File { line, column, .. }, Some(excerpt)) = (&self.place, &self.excerpt) {
            // A tab under a tab keeps the caret in step whatever the terminal makes of it.
            let before = excerpt.text.chars().take(column - 1);
            let gap: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            let carets = "^".repeat(excerpt.width);
            let remark = remarks.next().map_or(String::new(), |remark| format!(" {remark}"));
            write!(formatter, "\n{line:>5} | {}", excerpt.text)?;
            write!(formatter, "\n      | {gap}{carets}{remark}")?;
        }
        remarks.try_for_each(|remark| write!(formatter, "\n      = {remark}"))
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sources: Vec<&str> = Vec::new();
        for mistake in &self.0 {
            writeln!(formatter, "{mistake}")?;
            let source = match &mistake.place {
                Place::File { name, .. } => name,
                Place::Variable(_) => "the environment",
                Place::Flag(_) => "the command line",
            };
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        let count = self.0.len();
        let noun = if count == 1 { "mistake" } else { "mistakes" };
        write!(formatter, "{count} {noun} in {}; nothing was started", sources.join(" and "))
    }
}

impl std::error::Error for Mistakes {}
