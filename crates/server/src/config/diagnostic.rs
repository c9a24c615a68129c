//! Diagnostics: where a mistake is, what was found, what was expected, and what to do. The checks
//! themselves live with each setting.

use std::fmt;

use super::document::Position;
use super::mask;
use super::paths::Source;

/// Characters of a value in a message; longer values are cut.
const MAX_VALUE: usize = 60;
/// Characters of an excerpt; longer lines are cut.
const MAX_LINE: usize = 120;

/// All mistakes of a configuration, sorted by location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

/// One mistake. `Display` shows it over several lines, as a compiler does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where the mistake is.
    pub location: Location,
    /// What was found.
    pub message: String,
    /// What would be right.
    pub expected: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    excerpt: Option<Excerpt>,
}

/// Where a setting comes from, as messages show it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// A file.
    File {
        /// The name of the file.
        name: String,
        /// The line, counted from one.
        line: usize,
        /// The character in that line, counted from one.
        column: usize,
    },
    /// An environment variable.
    Variable(String),
    /// A command-line flag.
    Flag(&'static str),
}

/// The line with the mistake; API keys are masked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Excerpt {
    text: String,
    width: usize,
}

/// A mistake without its location: the result of a check of one value.
#[derive(Debug)]
pub(super) struct Problem {
    message: String,
    expected: Option<String>,
    hint: Option<String>,
}

impl Problem {
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

    /// Adds "did you mean" if there is a suggestion.
    pub(super) fn did_you_mean(self, suggestion: Option<&str>) -> Self {
        match suggestion {
            // If only one value is right, `expected` names it already.
            Some(suggestion) if self.expected != Some(one_of([suggestion])) => {
                self.hint(format!("did you mean `{suggestion}`?"))
            }
            _ => self,
        }
    }
}

/// Collects mistakes during reading.
pub(super) struct Report<'a> {
    source: Option<&'a Source>,
    mistakes: Vec<Diagnostic>,
}

impl<'a> Report<'a> {
    pub(super) fn new(source: Option<&'a Source>) -> Self {
        Self { source, mistakes: Vec::new() }
    }

    pub(super) fn add(&mut self, position: &Position, problem: Problem) {
        let (location, excerpt) = match position {
            Position::File(span) => self.locate(span.start, span.end),
            Position::Variable(name) => (Location::Variable(name.clone()), None),
            Position::Flag(name) => (Location::Flag(name), None),
        };
        let Problem { message, expected, hint } = problem;
        self.mistakes.push(Diagnostic { location, message, expected, hint, excerpt });
    }

    /// Adds the mistakes of a file that this one names.
    pub(super) fn add_all(&mut self, other: Report<'_>) {
        self.mistakes.extend(other.mistakes);
    }

    /// How a message refers to another position: `line 4`, or the name of the variable.
    pub(super) fn refer(&self, position: &Position) -> String {
        match position {
            Position::File(span) => match self.locate(span.start, span.end).0 {
                Location::File { line, .. } => format!("line {line}"),
                Location::Variable(name) => name,
                Location::Flag(name) => name.to_owned(),
            },
            Position::Variable(name) => name.clone(),
            Position::Flag(name) => (*name).to_owned(),
        }
    }

    /// The value if there are no mistakes, else all mistakes.
    pub(super) fn finish<T>(mut self, value: Option<T>) -> Result<T, Diagnostics> {
        self.mistakes.sort_by(|left, right| left.location.cmp(&right.location));
        match value {
            Some(value) if self.mistakes.is_empty() => Ok(value),
            _ => Err(Diagnostics(self.mistakes)),
        }
    }

    fn locate(&self, start: usize, end: usize) -> (Location, Option<Excerpt>) {
        let (name, text) = match self.source {
            Some(source) => (source.name.clone(), source.text.as_str()),
            None => (String::new(), ""),
        };
        // The parser may point one past the end, or between two bytes of a character.
        let start = text.floor_char_boundary(start.min(text.len()));
        let end = text.ceil_char_boundary(end.min(text.len()).max(start));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let line = text[line_start..line_end].trim_end_matches('\r');
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        let column = text[line_start..start].trim_start_matches('\u{feff}').chars().count() + 1;
        let location =
            Location::File { name, line: text[..start].matches('\n').count() + 1, column };
        let width = text[start..end.min(line_end)].trim_end_matches('\r').chars().count().max(1);
        let mut shown: String = mask::line(line)
            .chars()
            .map(|letter| if letter.is_control() && letter != '\t' { '\u{b7}' } else { letter })
            .collect();
        let max = MAX_LINE.max(column + width);
        if let Some((cut, _)) = shown.char_indices().nth(max) {
            shown.truncate(cut);
            shown.push('…');
        }
        (location, Some(Excerpt { text: shown, width }))
    }
}

/// Shows a value in backticks: API keys are hidden, control characters escaped, long values cut.
pub(super) fn shown(value: &str) -> String {
    if mask::looks_secret(value) {
        return "a value that looks like a key".to_owned();
    }
    let mut escaped = String::new();
    for letter in value.chars().take(MAX_VALUE) {
        match letter.is_control() {
            true => escaped.extend(letter.escape_default()),
            false => escaped.push(letter),
        }
    }
    let more = if value.chars().count() > MAX_VALUE { "…" } else { "" };
    format!("`{escaped}{more}`")
}

/// Lists the values that are right.
pub(super) fn one_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match names.as_slice() {
        [only] => format!("`{only}`"),
        _ => format!("one of {}", list(names)),
    }
}

/// Lists names in backticks.
pub(super) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line, column } => write!(formatter, "{name}:{line}:{column}"),
            Self::Variable(name) => write!(formatter, "env {name}"),
            Self::Flag(name) => formatter.write_str(name),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.location, self.message)?;
        let expected = self.expected.as_ref().map(|expected| format!("expected {expected}"));
        let mut remarks = expected.iter().chain(&self.hint);
        if let (Location::File { line, column, .. }, Some(excerpt)) =
            (&self.location, &self.excerpt)
        {
            // A tab under a tab keeps the caret aligned for every tab width.
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

impl fmt::Display for Diagnostics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sources: Vec<&str> = Vec::new();
        for mistake in &self.0 {
            writeln!(formatter, "{mistake}")?;
            let source = match &mistake.location {
                Location::File { name, .. } => name,
                Location::Variable(_) => "the environment",
                Location::Flag(_) => "the command line",
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

impl std::error::Error for Diagnostics {}
