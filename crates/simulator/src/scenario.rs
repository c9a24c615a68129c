//! Scenarios: scripted replies and faults from a TOML file.
//!
//! A scenario is a list of `[[step]]`. Each request takes the first step that has turns left and
//! whose `when` fits; a request without a step gets the default reply. The crate's documentation
//! lists the keys.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use http::StatusCode;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use crate::fault::{self, Fault};
use crate::replay::Replay;
use crate::script::Piece;
use crate::style::{SignatureStyle, UnknownStyle};

/// A valid scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    signature: Option<SignatureStyle>,
    steps: Vec<Step>,
}

/// Why a scenario cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read `{}`: {message}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        message: String,
    },
    /// The scenario is invalid.
    #[error("{}scenario line {line}, key `{key}`: {message}", name(file.as_deref()))]
    Wrong {
        /// The file, if the scenario came from one.
        file: Option<PathBuf>,
        /// The line, counted from 1.
        line: usize,
        /// The key on that line.
        key: String,
        /// The reason.
        message: String,
    },
}

fn name(file: Option<&Path>) -> String {
    file.map(|file| format!("{}: ", file.display())).unwrap_or_default()
}

/// What a step does with a request.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    contains: Option<String>,
    model: Option<String>,
    nth: Option<u64>,
    times: Option<u32>,
    pub(crate) faults: Vec<Fault>,
    say: Option<Vec<ScriptedPiece>>,
    pub(crate) replay: Option<Replay>,
    pub(crate) signature: Option<SignatureStyle>,
    pub(crate) answer_model: Option<String>,
}

/// One piece of a scripted reply.
#[derive(Clone, Debug, PartialEq)]
enum ScriptedPiece {
    Fixed(Piece),
    /// A text that ends in the word which the conversation has after `after`.
    Recalled {
        text: String,
        after: String,
    },
}

impl ScriptedPiece {
    fn write(&self, conversation: &str) -> Piece {
        match self {
            Self::Fixed(piece) => piece.clone(),
            Self::Recalled { text, after } => {
                let word = word_after(conversation, after).unwrap_or(FORGOTTEN);
                Piece::Text(format!("{text}{word}"))
            }
        }
    }
}

/// The word in place of one that the conversation does not have.
const FORGOTTEN: &str = "nothing";

/// The word that follows the first occurrence of `after`.
fn word_after<'a>(conversation: &'a str, after: &str) -> Option<&'a str> {
    let (_, rest) = conversation.split_once(after)?;
    let end = rest.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(rest.len());
    rest.get(..end).filter(|word| !word.is_empty())
}

impl Scenario {
    /// Reads a scenario without captures; their paths are relative to a scenario's folder, and a
    /// text has none.
    ///
    /// # Errors
    /// The first problem, with its line and key.
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        Self::read(&Source { text, path: None })
    }

    /// Reads a scenario file, and the captures it replays.
    ///
    /// # Errors
    /// The first problem, with its file, line and key.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = fs::read_to_string(path).map_err(|error| ScenarioError::Unreadable {
            file: path.to_owned(),
            message: error.to_string(),
        })?;
        Self::read(&Source { text: &text, path: Some(path) })
    }

    fn read(source: &Source<'_>) -> Result<Self, ScenarioError> {
        let file: File = toml::from_str(source.text)
            .map_err(|error| source.wrong(error.span().unwrap_or(0..0), error.message()))?;
        let signature = file.signature.map(|style| read_style(source, &style));
        let steps = file.step.into_iter().map(|step| read_step(source, step));
        Ok(Self { signature: signature.transpose()?, steps: steps.collect::<Result<_, _>>()? })
    }

    pub(crate) fn signature(&self) -> Option<SignatureStyle> {
        self.signature
    }
}

/// A scenario in use: it counts requests and used steps.
pub(crate) struct Progress {
    scenario: Scenario,
    state: Mutex<State>,
}

struct State {
    requests: u64,
    used: Vec<u32>,
}

impl Progress {
    pub(crate) fn new(scenario: Scenario) -> Self {
        let used = vec![0; scenario.steps.len()];
        Self { scenario, state: Mutex::new(State { requests: 0, used }) }
    }

    /// Takes the step for the next request, if one fits.
    pub(crate) fn next(&self, model: &str, text: &str) -> Option<Step> {
        let mut state = self.state.lock();
        state.requests += 1;
        let nth = state.requests;
        for (step, used) in self.scenario.steps.iter().zip(&mut state.used) {
            if step.times.is_none_or(|times| *used < times) && step.fits(nth, model, text) {
                *used += 1;
                return Some(step.clone());
            }
        }
        None
    }
}

impl Step {
    /// The scripted reply, if there is one, to this conversation.
    pub(crate) fn pieces(&self, conversation: &str) -> Option<Vec<Piece>> {
        let pieces = self.say.as_ref()?.iter();
        Some(pieces.map(|piece| piece.write(conversation)).collect())
    }

    fn fits(&self, nth: u64, model: &str, text: &str) -> bool {
        self.nth.is_none_or(|wanted| wanted == nth)
            && self.contains.as_ref().is_none_or(|part| text.contains(part))
            && self.model.as_ref().is_none_or(|glob| matches_glob(glob, model))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    signature: Option<Spanned<String>>,
    #[serde(default)]
    step: Vec<RawStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    when: Option<When>,
    times: Option<u32>,
    fault: Option<Spanned<String>>,
    say: Option<Spanned<Vec<Spanned<RawPiece>>>>,
    replay: Option<Spanned<String>>,
    status: Option<Spanned<u16>>,
    signature: Option<Spanned<String>>,
    answer_model: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct When {
    contains: Option<String>,
    model: Option<String>,
    nth: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPiece {
    thinking: Option<String>,
    redacted: Option<bool>,
    text: Option<String>,
    tool: Option<RawTool>,
    recall: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTool {
    name: String,
    #[serde(default = "no_input")]
    input: Value,
}

fn no_input() -> Value {
    Value::Object(serde_json::Map::new())
}

fn read_step(source: &Source<'_>, raw: RawStep) -> Result<Step, ScenarioError> {
    let replay = read_replay(source, &raw)?;
    let when = raw.when.unwrap_or_default();
    let unconditional = when.contains.is_none() && when.model.is_none() && when.nth.is_none();
    let faults = raw.fault.map(|fault| {
        fault::read(fault.get_ref()).map_err(|error| source.wrong(fault.span(), &error.to_string()))
    });
    let say = raw.say.map(|pieces| {
        let pieces = pieces.into_inner().into_iter();
        pieces.map(|piece| read_piece(source, piece)).collect::<Result<Vec<_>, _>>()
    });
    let signature = raw.signature.map(|style| read_style(source, &style));
    Ok(Step {
        contains: when.contains,
        model: when.model,
        nth: when.nth,
        // Steps without a condition are a sequence, so each is used once.
        times: raw.times.or(unconditional.then_some(1)),
        faults: faults.transpose()?.unwrap_or_default(),
        say: say.transpose()?,
        replay,
        signature: signature.transpose()?,
        answer_model: raw.answer_model.map(Spanned::into_inner),
    })
}

fn read_replay(source: &Source<'_>, raw: &RawStep) -> Result<Option<Replay>, ScenarioError> {
    let Some(replay) = &raw.replay else {
        return match &raw.status {
            None => Ok(None),
            Some(status) => Err(source.wrong(
                status.span(),
                "`status` needs `replay`; for a refusal use `fault = \"status:529\"`",
            )),
        };
    };
    let conflicting = [
        raw.say.as_ref().map(|say| (say.span(), "say")),
        raw.answer_model.as_ref().map(|model| (model.span(), "answer_model")),
    ];
    if let Some((span, key)) = conflicting.into_iter().flatten().next() {
        let message = format!("a step with `replay` cannot have `{key}`");
        return Err(source.wrong(span, &message));
    }
    let status = match &raw.status {
        None => StatusCode::OK,
        Some(status) => StatusCode::from_u16(*status.get_ref())
            .ok()
            .filter(|status| (200..600).contains(&status.as_u16()))
            .ok_or_else(|| source.wrong(status.span(), "`status` must be from 200 to 599"))?,
    };
    let Some(path) = source.path else {
        let message = "`replay` is relative to the scenario's folder, so the scenario must be read from a file";
        return Err(source.wrong(replay.span(), message));
    };
    let capture = path.with_file_name(replay.get_ref());
    let read = Replay::load(&capture, status);
    read.map(Some).map_err(|message| source.wrong(replay.span(), &message))
}

fn read_piece(source: &Source<'_>, raw: Spanned<RawPiece>) -> Result<ScriptedPiece, ScenarioError> {
    let span = raw.span();
    let RawPiece { thinking, redacted, text, tool, recall } = raw.into_inner();
    let piece = match (thinking, redacted, text, tool) {
        (None, None, text, None) if recall.is_some() => {
            return Ok(ScriptedPiece::Recalled {
                text: text.unwrap_or_default(),
                after: recall.unwrap_or_default(),
            });
        }
        (Some(text), None, None, None) if recall.is_none() => Piece::Thinking(text),
        (None, Some(true), None, None) if recall.is_none() => {
            Piece::Redacted("Kept from view by the scenario.".to_owned())
        }
        (None, None, Some(text), None) => Piece::Text(text),
        (None, None, None, Some(tool)) if recall.is_none() => {
            Piece::Tool { name: tool.name, input: tool.input }
        }
        _ => {
            return Err(source.wrong(
                span,
                "a piece has exactly one of `thinking`, `redacted = true`, `text`, `tool`; a `text` \
                 may have `recall`",
            ));
        }
    };
    Ok(ScriptedPiece::Fixed(piece))
}

fn read_style(
    source: &Source<'_>,
    style: &Spanned<String>,
) -> Result<SignatureStyle, ScenarioError> {
    let read = style.get_ref().parse();
    read.map_err(|error: UnknownStyle| source.wrong(style.span(), &error.to_string()))
}

/// The text of a scenario and its file.
struct Source<'a> {
    text: &'a str,
    path: Option<&'a Path>,
}

impl Source<'_> {
    /// Finds the line of an offset in the text, and the key on that line or above it.
    fn wrong(&self, span: Range<usize>, message: &str) -> ScenarioError {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let key = self
            .text
            .lines()
            .take(line)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .find_map(key_of)
            .unwrap_or_default();
        ScenarioError::Wrong {
            file: self.path.map(Path::to_owned),
            line,
            key,
            message: message.trim().to_owned(),
        }
    }
}

fn key_of(line: &str) -> Option<String> {
    let line = line.trim();
    if let Some(table) = line.strip_prefix("[[").or(line.strip_prefix('[')) {
        return Some(table.trim_end_matches(']').to_owned());
    }
    let key = line.split_once('=')?.0.trim().trim_matches('"');
    let plain = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    (!key.is_empty() && key.chars().all(plain)).then(|| key.to_owned())
}

/// `*` matches any characters; everything else matches itself.
fn matches_glob(glob: &str, text: &str) -> bool {
    let Some((head, rest)) = glob.split_once('*') else {
        return glob == text;
    };
    let Some(text) = text.strip_prefix(head) else {
        return false;
    };
    let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    let mut tails = starts.filter_map(|at| text.get(at..));
    rest.is_empty() || tails.any(|tail| matches_glob(rest, tail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::ReplayFormat;
    use serde_json::json;

    #[test]
    fn scenario_reads_every_key() {
        let scenario = Scenario::from_toml(
            r#"
signature = "start"
[[step]]
when = { contains = "rain", model = "claude-*", nth = 2 }
fault = "cut:event=3; crlf"
say = [
  { thinking = "hm" }, { redacted = true },
  { text = "wet" }, { tool = { name = "look", input = { where = "out", n = 1 } } },
  { text = "I recall ", recall = "the code is " },
]
times = 2
answer_model = "other"
[[step]]
signature = "empty"
"#,
        )
        .unwrap();
        assert_eq!(scenario.signature(), Some(SignatureStyle::Start));
        let [first, second] = scenario.steps.as_slice() else {
            panic!("two steps");
        };
        assert_eq!(first.faults, [Fault::CutEvent(3), Fault::Crlf]);
        let pieces = first.pieces("It rains. the code is kiwi7, not the code is other").unwrap();
        assert_eq!(pieces.len(), 5);
        assert_eq!(
            pieces[3],
            Piece::Tool { name: "look".to_owned(), input: json!({"where": "out", "n": 1}) }
        );
        assert_eq!(pieces[4], Piece::Text("I recall kiwi7".to_owned()));
        assert_eq!(
            first.pieces("It rains.").unwrap()[4],
            Piece::Text("I recall nothing".to_owned())
        );
        assert_eq!(second.signature, Some(SignatureStyle::Empty));
        assert_eq!(second.times, Some(1));
    }

    #[test]
    fn scenario_error_names_line_and_key() {
        for (text, line, key, part) in [
            ("[[step]]\nfualt = \"cut\"", 2, "fualt", "unknown field `fualt`"),
            ("[[step]]\ntimes = 1\nfault = \"cat\"", 3, "fault", "unknown fault `cat`"),
            ("signature = \"loud\"", 1, "signature", "`loud`"),
            (
                "[[step]]\nsay = [\n  { text = \"a\", thinking = \"b\" },\n]",
                3,
                "say",
                "exactly one",
            ),
            ("[[step]]\nwhen = { nht = 1 }", 2, "when", "unknown field `nht`"),
            ("[[step]]\ntimes = \"x\"", 2, "times", "invalid type"),
            ("[[step]\n", 1, "step", ""),
        ] {
            let error = Scenario::from_toml(text).unwrap_err().to_string();
            let location = format!("scenario line {line}, key `{key}`: ");
            assert!(error.starts_with(&location), "{error}");
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn replay_path_is_relative_to_the_scenario_file() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        std::fs::create_dir(folder.path().join("captures")).unwrap();
        write("captures/a.sse", "data: 1\n\n");
        write("b.json", "{}");
        write("c.txt", "");
        let text = "[[step]]\nreplay = \"captures/a.sse\"\n\
            [[step]]\nreplay = \"b.json\"\nstatus = 529\nfault = \"crlf\"";
        let scenario = Scenario::load(&write("s.toml", text)).unwrap();
        let replays: Vec<_> = scenario.steps.into_iter().map(|step| step.replay).collect();
        assert_eq!(
            replays,
            [
                Some(Replay {
                    format: ReplayFormat::Events,
                    status: StatusCode::OK,
                    bytes: "data: 1\n\n".into(),
                }),
                Some(Replay {
                    format: ReplayFormat::Json,
                    status: StatusCode::from_u16(529).unwrap(),
                    bytes: "{}".into(),
                }),
            ]
        );
        for (text, line, key, part) in [
            ("replay = \"gone.sse\"", 2, "replay", "gone.sse"),
            ("replay = \"c.txt\"", 2, "replay", "`.sse`"),
            ("replay = \"captures\"", 2, "replay", "`.json`"),
            ("replay = \"b.json\"\nsay = []", 3, "say", "cannot have `say`"),
            (
                "replay = \"b.json\"\nanswer_model = \"x\"",
                3,
                "answer_model",
                "cannot have `answer_model`",
            ),
            ("replay = \"b.json\"\nstatus = 99", 3, "status", "200"),
            ("status = 200", 2, "status", "`replay`"),
        ] {
            let path = write("s.toml", &format!("[[step]]\n{text}"));
            let error = Scenario::load(&path).unwrap_err().to_string();
            let location = format!("{}: scenario line {line}, key `{key}`: ", path.display());
            assert!(error.starts_with(&location), "{error}");
            assert!(error.contains(part), "{error}");
        }
        let error = Scenario::from_toml("[[step]]\nreplay = \"b.json\"").unwrap_err();
        assert!(error.to_string().contains("from a file"), "{error}");
        let error = Scenario::load(&folder.path().join("gone.toml")).unwrap_err();
        assert!(error.to_string().contains("gone.toml"), "{error}");
    }

    #[test]
    fn steps_are_used_in_order_and_once() {
        let scenario = "[[step]]\nanswer_model = \"a\"\n[[step]]\nanswer_model = \"b\"\n\
            [[step]]\nwhen = { contains = \"x\" }\nanswer_model = \"c\"\n\
            [[step]]\nwhen = { nth = 6 }\nanswer_model = \"d\"";
        let progress = Progress::new(Scenario::from_toml(scenario).unwrap());
        let taken: Vec<Option<String>> = ["x", "", "x", "", "x", ""]
            .iter()
            .map(|text| progress.next("m", text).and_then(|step| step.answer_model))
            .collect();
        let names = [Some("a"), Some("b"), Some("c"), None, Some("c"), Some("d")];
        assert_eq!(taken, names.map(|name| name.map(str::to_owned)));
    }

    #[test]
    fn glob_matches_any_characters() {
        for (glob, text, fits) in [
            ("claude-*", "claude-opus-5", true),
            ("*opus*", "claude-opus-5", true),
            ("*-5", "claude-opus-5-5", true),
            ("opus", "claude-opus-5", false),
            ("*", "", true),
        ] {
            assert_eq!(matches_glob(glob, text), fits, "{glob} {text}");
        }
    }
}
