//! Scenarios: what the simulator says and breaks, written down in a TOML file.
//!
//! A scenario is a list of `[[step]]`. Each request for a message takes the
//! first step that still has turns left and whose `when` fits; a request that
//! fits none gets the usual reply. See the crate's documentation for the keys.

use std::ops::Range;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use crate::fault::{self, Fault};
use crate::script::Piece;
use crate::style::SignatureStyle;

/// A scenario, read and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    signature: Option<SignatureStyle>,
    steps: Vec<Step>,
}

/// What is wrong with a scenario file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("scenario line {line}, key `{key}`: {message}")]
pub struct ScenarioError {
    /// The line, counted from 1.
    pub line: usize,
    /// The key on that line.
    pub key: String,
    /// What is wrong with it.
    pub message: String,
}

/// What a step makes of a request.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    contains: Option<String>,
    model: Option<String>,
    nth: Option<u64>,
    times: Option<u32>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) say: Option<Vec<Piece>>,
    pub(crate) signature: Option<SignatureStyle>,
    pub(crate) answer_model: Option<String>,
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and key.
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        let file: File = toml::from_str(text)
            .map_err(|error| at(text, error.span().unwrap_or(0..0), error.message()))?;
        let signature = file.signature.map(|style| read_style(text, &style));
        let steps = file.step.into_iter().map(|step| read_step(text, step));
        Ok(Self {
            signature: signature.transpose()?,
            steps: steps.collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn signature(&self) -> Option<SignatureStyle> {
        self.signature
    }
}

/// A scenario under way.
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
        Self {
            scenario,
            state: Mutex::new(State { requests: 0, used }),
        }
    }

    /// The step for the next request, if one fits.
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
    fn fits(&self, nth: u64, model: &str, text: &str) -> bool {
        self.nth.is_none_or(|wanted| wanted == nth)
            && self
                .contains
                .as_ref()
                .is_none_or(|part| text.contains(part))
            && self
                .model
                .as_ref()
                .is_none_or(|glob| matches_glob(glob, model))
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
    say: Option<Vec<Spanned<RawPiece>>>,
    signature: Option<Spanned<String>>,
    answer_model: Option<String>,
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

fn read_step(source: &str, raw: RawStep) -> Result<Step, ScenarioError> {
    let when = raw.when.unwrap_or_default();
    let unconditional = when.contains.is_none() && when.model.is_none() && when.nth.is_none();
    let faults = raw.fault.map(|fault| {
        fault::read(fault.get_ref()).map_err(|error| at(source, fault.span(), &error.to_string()))
    });
    let say = raw.say.map(|pieces| {
        let pieces = pieces.into_iter().map(|piece| read_piece(source, piece));
        pieces.collect::<Result<Vec<_>, _>>()
    });
    let signature = raw.signature.map(|style| read_style(source, &style));
    Ok(Step {
        contains: when.contains,
        model: when.model,
        nth: when.nth,
        // Steps without a condition are a sequence, so each has one turn.
        times: raw.times.or(unconditional.then_some(1)),
        faults: faults.transpose()?.unwrap_or_default(),
        say: say.transpose()?,
        signature: signature.transpose()?,
        answer_model: raw.answer_model,
    })
}

fn read_piece(source: &str, raw: Spanned<RawPiece>) -> Result<Piece, ScenarioError> {
    let span = raw.span();
    match raw.into_inner() {
        RawPiece {
            thinking: Some(text),
            redacted: None,
            text: None,
            tool: None,
        } => Ok(Piece::Thinking(text)),
        RawPiece {
            thinking: None,
            redacted: Some(true),
            text: None,
            tool: None,
        } => Ok(Piece::Redacted(
            "Kept from view by the scenario.".to_owned(),
        )),
        RawPiece {
            thinking: None,
            redacted: None,
            text: Some(text),
            tool: None,
        } => Ok(Piece::Text(text)),
        RawPiece {
            thinking: None,
            redacted: None,
            text: None,
            tool: Some(tool),
        } => Ok(Piece::Tool {
            name: tool.name,
            input: tool.input,
        }),
        _ => Err(at(
            source,
            span,
            "a piece has exactly one of `thinking`, `redacted = true`, `text`, `tool`",
        )),
    }
}

fn read_style(source: &str, style: &Spanned<String>) -> Result<SignatureStyle, ScenarioError> {
    style
        .get_ref()
        .parse()
        .map_err(|error: crate::style::UnknownStyle| at(source, style.span(), &error.to_string()))
}

/// Names the line of a place in the file, and the key that stands on it or above it.
fn at(source: &str, span: Range<usize>, message: &str) -> ScenarioError {
    let before = source.get(..span.start).unwrap_or(source);
    let line = before.matches('\n').count() + 1;
    let key = source
        .lines()
        .take(line)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .find_map(key_of)
        .unwrap_or_default();
    ScenarioError {
        line,
        key,
        message: message.trim().to_owned(),
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

/// `*` stands for any run of characters; everything else for itself.
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
    use serde_json::json;

    #[test]
    fn a_scenario_is_read_whole() {
        let scenario = Scenario::from_toml(
            r#"
signature = "start"
[[step]]
when = { contains = "rain", model = "claude-*", nth = 2 }
fault = "cut:event=3; crlf"
say = [
  { thinking = "hm" }, { redacted = true },
  { text = "wet" }, { tool = { name = "look", input = { where = "out", n = 1 } } },
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
        assert_eq!(first.say.as_ref().unwrap().len(), 4);
        assert_eq!(
            first.say.as_ref().unwrap()[3],
            Piece::Tool {
                name: "look".to_owned(),
                input: json!({"where": "out", "n": 1})
            }
        );
        assert_eq!(second.signature, Some(SignatureStyle::Empty));
        assert_eq!(second.times, Some(1));
    }

    #[test]
    fn errors_name_line_and_key() {
        for (text, line, key, part) in [
            (
                "[[step]]\nfualt = \"cut\"",
                2,
                "fualt",
                "unknown field `fualt`",
            ),
            (
                "[[step]]\ntimes = 1\nfault = \"cat\"",
                3,
                "fault",
                "no fault is called `cat`",
            ),
            ("signature = \"loud\"", 1, "signature", "`loud`"),
            (
                "[[step]]\nsay = [\n  { text = \"a\", thinking = \"b\" },\n]",
                3,
                "say",
                "exactly one",
            ),
            (
                "[[step]]\nwhen = { nht = 1 }",
                2,
                "when",
                "unknown field `nht`",
            ),
            ("[[step]]\ntimes = \"x\"", 2, "times", "invalid type"),
            ("[[step]\n", 1, "step", ""),
        ] {
            let error = Scenario::from_toml(text).unwrap_err();
            assert_eq!((error.line, error.key.as_str()), (line, key), "{error}");
            assert!(error.message.contains(part), "{error}");
        }
    }

    #[test]
    fn steps_are_taken_in_order_and_used_up() {
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
    fn globs_match_anywhere() {
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
