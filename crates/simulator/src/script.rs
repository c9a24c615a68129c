//! The content of replies: pieces that the seed and the request decide.
//!
//! Nothing here knows a dialect. Signing, ids and events come later.

use serde_json::{Map, Value, json};

use crate::signing::Hash;

/// A longer bench would only cost memory.
const MAX_DELTAS: usize = 200_000;

/// One piece of a reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    Thinking(String),
    /// Redacted thinking: the client never sees its text.
    Redacted(String),
    Text(String),
    Tool {
        name: String,
        input: Value,
    },
}

/// A tool the client offers.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) schema: Value,
}

/// Whether a tool may or must be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Auto,
    Never,
    Any,
    Named(String),
}

/// The format of the answer.
#[derive(Clone, Debug, Default)]
pub(crate) enum AnswerFormat {
    #[default]
    Text,
    /// Any JSON object.
    Json,
    /// JSON that fits this schema.
    Schema(Value),
}

/// What the reply depends on, apart from the seed.
#[derive(Debug)]
pub(crate) struct Situation {
    /// The user's last text, without tool results.
    pub(crate) user_text: String,
    /// The texts of the last tool results; empty at the start of a turn.
    pub(crate) results: Vec<String>,
    /// The rounds of tool calls since the user's last text.
    pub(crate) rounds: usize,
    pub(crate) tools: Vec<Tool>,
    pub(crate) choice: Choice,
    pub(crate) parallel: bool,
    /// Whether the reply has thinking.
    pub(crate) thinks: bool,
    pub(crate) format: AnswerFormat,
    /// The number of text deltas that the header asks for.
    pub(crate) deltas: Option<usize>,
}

/// A reply before it is signed.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) pieces: Vec<Piece>,
    /// Benches and scenarios ignore `max_tokens`.
    pub(crate) scripted: bool,
}

/// Chooses the pieces of a reply.
pub(crate) fn write(situation: &Situation, random: &mut Random) -> Script {
    let user_text = situation.user_text.to_lowercase();
    if let Some(deltas) = situation.deltas.or_else(|| bench(&user_text)) {
        return Script {
            pieces: vec![Piece::Text("tok ".repeat(deltas.clamp(1, MAX_DELTAS)))],
            scripted: true,
        };
    }
    let mut pieces = Vec::new();
    let think = |pieces: &mut Vec<Piece>, random: &mut Random| {
        if situation.thinks {
            pieces.push(Piece::Thinking(thought(situation, random)));
        }
    };
    if situation.thinks && user_text.contains("redacted") && situation.results.is_empty() {
        pieces.push(Piece::Redacted(thought(situation, random)));
    }
    think(&mut pieces, random);
    let twice = user_text.contains("think twice");
    if let Some(tool) = tool_to_call(situation, &user_text) {
        if situation.results.is_empty() {
            pieces.push(Piece::Text(format!("I will look with {}.", tool.name)));
        }
        if twice {
            think(&mut pieces, random);
        }
        let calls = if situation.parallel && user_text.contains("in parallel") { 2 } else { 1 };
        for _ in 0..calls {
            pieces.push(Piece::Tool {
                name: tool.name.clone(),
                input: Filler::new(&tool.schema, random).fill(&tool.schema, "input", 0),
            });
        }
    } else if let Some(document) = document(situation, random) {
        pieces.push(Piece::Text(document.to_string()));
    } else if user_text.contains("only think") {
        pieces.push(Piece::Text("Done.".to_owned()));
    } else {
        if twice {
            pieces.push(Piece::Text("First I looked at the question.".to_owned()));
            think(&mut pieces, random);
        }
        pieces.push(Piece::Text(answer(situation, random)));
    }
    Script { pieces, scripted: false }
}

/// Cuts pieces to a number of tokens. Returns whether anything was cut.
pub(crate) fn limit(pieces: &mut Vec<Piece>, tokens: u64) -> bool {
    let mut left = usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(4);
    for index in 0..pieces.len() {
        let Some(piece) = pieces.get_mut(index) else {
            break;
        };
        let size = piece.text().len();
        if size <= left {
            left -= size;
            continue;
        }
        let keep = match piece {
            Piece::Thinking(text) | Piece::Text(text) if left > 0 => {
                text.truncate(text.floor_char_boundary(left));
                index + usize::from(!text.is_empty())
            }
            // A partial call or redacted block is useless, so it is dropped.
            _ => index,
        };
        pieces.truncate(keep);
        return true;
    }
    false
}

/// Cuts thinking to a number of tokens. Everything else stays.
pub(crate) fn limit_thinking(pieces: &mut Vec<Piece>, tokens: u64) {
    let mut left = usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(4);
    pieces.retain_mut(|piece| match piece {
        Piece::Thinking(text) => {
            text.truncate(text.floor_char_boundary(left));
            left -= text.len();
            !text.is_empty()
        }
        Piece::Redacted(text) => {
            let fits = text.len() <= left;
            left -= if fits { text.len() } else { 0 };
            fits
        }
        Piece::Text(_) | Piece::Tool { .. } => true,
    });
}

impl Piece {
    /// The text that is counted as output.
    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::Thinking(text) | Self::Redacted(text) | Self::Text(text) => text.into(),
            Self::Tool { name, input } => format!("{name}{input}").into(),
        }
    }
}

/// A small deterministic source of choices (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(hash: &Hash) -> Self {
        let start = hash.first_chunk().copied().unwrap_or_default();
        Self(u64::from_be_bytes(start))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn pick(&mut self, choices: &[&'static str]) -> &'static str {
        let index = self.next() as usize % choices.len().max(1);
        choices.get(index).copied().unwrap_or_default()
    }
}

fn bench(user_text: &str) -> Option<usize> {
    let (_, rest) = user_text.split_once("bench ")?;
    rest.split_whitespace().next()?.parse().ok()
}

fn tool_to_call<'a>(situation: &'a Situation, user_text: &str) -> Option<&'a Tool> {
    let named = |name: &str| situation.tools.iter().find(|tool| tool.name == name);
    let mentioned =
        situation.tools.iter().find(|tool| has_word(user_text, &tool.name.to_lowercase()));
    let first = || mentioned.or(situation.tools.first());
    if !situation.results.is_empty() {
        // "think twice" asks for thinking, not for calls.
        let rest = user_text.replace("think twice", "");
        let wanted = if rest.contains("twice") || rest.contains("two tools") { 2 } else { 1 };
        let again = situation.rounds < wanted && situation.choice != Choice::Never;
        return again.then(first).flatten();
    }
    match &situation.choice {
        Choice::Never => None,
        Choice::Any => first(),
        Choice::Named(name) => named(name),
        Choice::Auto => {
            let wanted = has_word(user_text, "tool") || has_word(user_text, "tools");
            if wanted { first() } else { mentioned }
        }
    }
}

fn has_word(text: &str, word: &str) -> bool {
    !word.is_empty()
        && text.match_indices(word).any(|(at, found)| {
            let outside = |letter: Option<char>| {
                letter.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_')
            };
            let before = text.get(..at).and_then(|part| part.chars().next_back());
            let after = text.get(at + found.len()..).and_then(|part| part.chars().next());
            outside(before) && outside(after)
        })
}

/// Sentences with characters that broken transports damage.
fn thought(situation: &Situation, random: &mut Random) -> String {
    let opening = random.pick(&[
        "Let me take this apart first.",
        "What is being asked here?",
        "I want to be careful with this one.",
        "Two readings are possible; the plain one first.",
    ]);
    let odd = random.pick(&[
        "\n\n\tA naïve guess → ✓, a second look 🧠 agrees.",
        " It is \"quoted\", a C:\\path and a </tag> & more.",
        "\r\nLine ends differ: «left» … “right”, zero\u{200d}width.",
        " In short: 漢字, Ω ≠ 0, and \u{1F469}\u{200D}\u{1F4BB} stays whole.",
    ]);
    let closing = if situation.results.is_empty() {
        random.pick(&[
            " Then the answer can be short.",
            " One step is enough.",
            " So I know what to say.",
        ])
    } else {
        random.pick(&[" The result settles it.", " With the result in hand I can go on."])
    };
    format!("{opening} It is about {}.{odd}{closing}", quote(&situation.user_text))
}

fn answer(situation: &Situation, random: &mut Random) -> String {
    let question = quote(&situation.user_text);
    match situation.results.as_slice() {
        [] => {
            let opening = random.pick(&["You asked", "Your words were", "The question was"]);
            let closing = random.pick(&[
                "This is the simulator's answer.",
                "The simulator has no opinion, but it did think about it.",
            ]);
            format!("{opening} {question}. {closing}")
        }
        results => {
            let quoted: Vec<String> = results.iter().map(|result| quote(result)).collect();
            format!("The tool says {}. That answers {question}.", quoted.join(" and "))
        }
    }
}

fn quote(text: &str) -> String {
    let text = text.trim();
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    if short.is_empty() {
        short.push_str("nothing");
    }
    format!("“{short}”")
}

/// The answer as JSON, if the request asks for that.
fn document(situation: &Situation, random: &mut Random) -> Option<Value> {
    match &situation.format {
        AnswerFormat::Text => None,
        AnswerFormat::Json => Some(json!({ "answer": answer(situation, random) })),
        AnswerFormat::Schema(schema) => Some(Filler::new(schema, random).fill(schema, "answer", 0)),
    }
}

/// Makes values that fit a JSON schema: required members only, filled by type.
struct Filler<'a> {
    /// The whole schema, which holds the definitions.
    root: &'a Value,
    random: &'a mut Random,
}

impl<'a> Filler<'a> {
    fn new(root: &'a Value, random: &'a mut Random) -> Self {
        Self { root, random }
    }

    fn fill(&mut self, schema: &Value, name: &str, depth: usize) -> Value {
        let first = |key: &str| schema.get(key)?.as_array()?.first().cloned();
        if let Some(given) = schema.get("const").or(schema.get("default")) {
            return given.clone();
        }
        if let Some(given) = first("enum").or_else(|| first("examples")) {
            return given;
        }
        if depth > 8 {
            return Value::Null;
        }
        let reference = schema.get("$ref").and_then(Value::as_str);
        if let Some(path) = reference.and_then(|reference| reference.strip_prefix('#')) {
            let root = self.root;
            return self.fill(root.pointer(path).unwrap_or(&Value::Null), name, depth + 1);
        }
        if let Some(branch) = first("anyOf").or_else(|| first("oneOf")).or_else(|| first("allOf")) {
            return self.fill(&branch, name, depth + 1);
        }
        let kind = match schema.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str).unwrap_or_default(),
            _ if schema.get("properties").is_some() || depth == 0 => "object",
            _ => "string",
        };
        let least = schema.get("minimum").and_then(Value::as_i64);
        match kind {
            "object" => self.object(schema, depth),
            "array" => {
                let items = schema.get("items").unwrap_or(&Value::Null);
                let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(1).min(8);
                (0..least).map(|_| self.fill(items, name, depth + 1)).collect()
            }
            "integer" | "number" => least.unwrap_or((self.random.next() % 9 + 1) as i64).into(),
            "boolean" => true.into(),
            "null" => Value::Null,
            _ => format!("{name} {}", self.random.next() % 100).into(),
        }
    }

    fn object(&mut self, schema: &Value, depth: usize) -> Value {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let members: Map<String, Value> = required
            .filter_map(Value::as_str)
            .map(|key| {
                let inner = schema.get("properties").and_then(|all| all.get(key));
                let value = self.fill(inner.unwrap_or(&Value::Null), key, depth + 1);
                (key.to_owned(), value)
            })
            .collect();
        members.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn situation(text: &str) -> Situation {
        Situation {
            user_text: text.to_owned(),
            results: Vec::new(),
            rounds: 0,
            tools: vec![
                Tool { name: "lookup".to_owned(), schema: json!({"type": "object"}) },
                Tool { name: "get_weather".to_owned(), schema: json!({"type": "object"}) },
            ],
            choice: Choice::Auto,
            parallel: true,
            thinks: true,
            format: AnswerFormat::Text,
            deltas: None,
        }
    }

    /// One letter per piece: think, redacted, text, use.
    fn shape(situation: &Situation) -> String {
        let script = write(situation, &mut Random(1));
        let letter = |piece: &Piece| match piece {
            Piece::Thinking(_) => 't',
            Piece::Redacted(_) => 'r',
            Piece::Text(_) => 'x',
            Piece::Tool { .. } => 'u',
        };
        script.pieces.iter().map(letter).collect()
    }

    #[test]
    fn trigger_words_select_the_reply() {
        for (text, expected) in [
            ("hello", "tx"),
            ("hello redacted", "rtx"),
            ("think twice", "txtx"),
            ("only think", "tx"),
            ("use a tool", "txu"),
            ("toolbox", "tx"),
            ("Get_Weather please", "txu"),
            ("use a tool in parallel", "txuu"),
            ("use a tool and think twice", "txtu"),
            ("bench 12", "x"),
        ] {
            assert_eq!(shape(&situation(text)), expected, "{text}");
        }
    }

    #[test]
    fn tool_result_leads_to_an_answer_or_a_second_call() {
        let after = |text: &str, rounds| {
            let mut situation = situation(text);
            situation.results = vec!["42".to_owned()];
            situation.rounds = rounds;
            shape(&situation)
        };
        assert_eq!(after("use a tool", 1), "tx");
        assert_eq!(after("use a tool twice", 1), "tu");
        assert_eq!(after("use two tools", 1), "tu");
        assert_eq!(after("use a tool twice", 2), "tx");
        assert_eq!(after("use a tool, think twice", 1), "txtx");
    }

    #[test]
    fn tool_choice_decides_the_call() {
        let chosen = |choice| {
            let mut situation = situation("hello");
            situation.choice = choice;
            shape(&situation)
        };
        assert_eq!(chosen(Choice::Any), "txu");
        assert_eq!(chosen(Choice::Named("get_weather".to_owned())), "txu");
        assert_eq!(chosen(Choice::Auto), "tx");
        let mut silent = situation("use a tool");
        silent.choice = Choice::Never;
        silent.thinks = false;
        assert_eq!(shape(&silent), "x");
    }

    #[test]
    fn generated_input_fits_the_schema() {
        let schema = json!({"type": "object", "required": ["city", "days", "unit", "deep", "list", "yes"],
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 3},
                "unit": {"enum": ["C", "F"]}, "yes": {"type": "boolean"}, "other": {"type": "string"},
                "deep": {"type": "object", "required": ["x"], "properties": {"x": {"type": "null"}}},
                "list": {"type": "array", "items": {"type": "boolean"}}}});
        let fill = |schema: &Value| Filler::new(schema, &mut Random(1)).fill(schema, "input", 0);
        let input = fill(&schema);
        assert!(input["city"].as_str().unwrap().starts_with("city "));
        assert_eq!(input["days"], 3);
        assert_eq!(input["unit"], "C");
        assert_eq!(input["deep"], json!({"x": null}));
        assert_eq!(input["list"], json!([true]));
        assert_eq!(input["yes"], true);
        assert_eq!(input.get("other"), None);
        assert_eq!(fill(&json!("cut")), json!({}));
        let referring = json!({"$defs": {"row": {"type": "object", "required": ["key"],
            "properties": {"key": {"const": "k"}}}}, "type": "object", "required": ["rows", "next"],
            "properties": {"rows": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/row"}},
                "next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}});
        let expected = json!({"rows": [{"key": "k"}, {"key": "k"}], "next": null});
        assert_eq!(fill(&referring), expected);
    }

    #[test]
    fn answer_has_the_requested_format() {
        let answered = |format| {
            let situation = Situation { format, ..situation("hello") };
            let script = write(&situation, &mut Random(1));
            let Some(Piece::Text(text)) = script.pieces.last() else {
                panic!("no text");
            };
            serde_json::from_str::<Value>(text).ok()
        };
        assert_eq!(answered(AnswerFormat::Text), None);
        assert!(answered(AnswerFormat::Json).unwrap()["answer"].is_string());
        let schema =
            json!({"type": "object", "required": ["n"], "properties": {"n": {"const": 5}}});
        assert_eq!(answered(AnswerFormat::Schema(schema)), Some(json!({"n": 5})));
    }

    #[test]
    fn token_limit_cuts_text_between_characters_and_drops_whole_calls() {
        let text = |text: &str| Piece::Text(text.to_owned());
        let call = Piece::Tool { name: "lookup".to_owned(), input: json!({}) };
        let mut pieces = vec![text("éééé"), call.clone()];
        assert!(limit(&mut pieces, 2));
        assert_eq!(pieces, [text("éééé")]);
        let mut pieces = vec![text("aéééé")];
        assert!(limit(&mut pieces, 1));
        assert_eq!(pieces, [text("aé")]);
        let mut pieces = vec![call];
        assert!(!limit(&mut pieces, 100));
        assert!(limit(&mut pieces, 0));
        assert_eq!(pieces, []);
    }
}
