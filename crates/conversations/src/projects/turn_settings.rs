//! The settings of a turn, as the description of the API shows them. The dialect of the store reads
//! them; these types are never built.

use serde_json::Value;
use utoipa::ToSchema;

/// The settings of a turn. An absent one means the model's own default.
#[derive(ToSchema)]
#[allow(dead_code, reason = "describes what the dialect of the store reads")]
pub(super) struct TurnSettings {
    /// How much the model thinks: a switch, a word, a number of tokens, or an object.
    thinking: Option<ThinkingOption>,
    /// How much the model thinks, in the word of other APIs.
    reasoning_effort: Option<EffortOption>,
    /// The tools that the model may call.
    tools: Option<Vec<AnyTool>>,
    /// Whether it may or must call one.
    tool_choice: Option<ToolChoiceOption>,
    /// Whether it may call several at once.
    parallel_calls: Option<bool>,
    /// The sampling temperature.
    #[schema(minimum = 0)]
    temperature: Option<f64>,
    /// Samples from the most likely tokens with this joint probability.
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    /// Samples from this many of the most likely tokens.
    #[schema(minimum = 0)]
    top_k: Option<u64>,
    /// Makes samples repeatable, if the provider can.
    seed: Option<i64>,
    /// Makes tokens that are in the text less likely.
    presence_penalty: Option<f64>,
    /// Makes tokens that are often in the text less likely.
    frequency_penalty: Option<f64>,
    /// The largest number of tokens of the answer, with its thinking.
    #[schema(minimum = 0)]
    max_tokens: Option<u64>,
    /// Texts that end the answer.
    stop: Option<StopOption>,
    /// Whether the provider stores the answer, if it can.
    store: Option<bool>,
}

/// How much a model thinks.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes a setting")]
enum ThinkingOption {
    /// On or off.
    Switch(bool),
    /// A word.
    Word(ThinkingWord),
    /// The largest number of tokens.
    Budget(u64),
    /// Several settings at once.
    Options(ThinkingOptions),
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "describes a setting")]
enum ThinkingWord {
    Off,
    None,
    On,
    Adaptive,
    Auto,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "describes a setting")]
enum EffortOption {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

/// How much a model thinks, and what of it the answer shows.
#[derive(ToSchema)]
#[allow(dead_code, reason = "describes a setting")]
struct ThinkingOptions {
    /// A word.
    effort: Option<EffortOption>,
    /// The largest number of tokens.
    budget: Option<u64>,
    /// What the answer shows.
    show: Option<ShowOption>,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "describes a setting")]
enum ShowOption {
    Full,
    Summary,
    Hidden,
}

/// A tool that the server runs, or one that the client runs.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes a setting")]
enum AnyTool {
    /// The name of an MCP server, or `server/tool`.
    OfServer(String),
    /// A tool of the client.
    OfClient(ToolOption),
}

/// A tool.
#[derive(ToSchema)]
#[allow(dead_code, reason = "describes a setting")]
struct ToolOption {
    /// The name.
    #[schema(min_length = 1)]
    name: String,
    /// What it does.
    description: Option<String>,
    /// The JSON Schema of its arguments.
    #[schema(value_type = Option<Object>)]
    parameters: Option<Value>,
    /// Whether the arguments must follow the schema exactly.
    strict: Option<bool>,
}

/// Whether a model may or must call tools.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes a setting")]
enum ToolChoiceOption {
    /// A word.
    Word(ToolChoiceWord),
    /// One tool.
    Named(NamedTool),
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "describes a setting")]
enum ToolChoiceWord {
    Auto,
    None,
    Required,
}

/// The tool that a model must call.
#[derive(ToSchema)]
#[allow(dead_code, reason = "describes a setting")]
struct NamedTool {
    r#type: NamedToolType,
    /// The name of the tool.
    name: String,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "describes a setting")]
enum NamedToolType {
    Named,
    Tool,
    Function,
}

/// Texts that end an answer.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes a setting")]
enum StopOption {
    /// One text.
    One(String),
    /// Several texts.
    Several(Vec<String>),
}

/// A text, or blocks.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes a member")]
pub(super) enum MessageOption {
    /// A text.
    Text(String),
    /// Blocks: `text`, `media` and `tool_result`.
    #[schema(value_type = Vec<Object>)]
    Blocks(Vec<Value>),
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use utoipa::PartialSchema;

    use super::*;
    use crate::projects::turn::read_settings;

    #[test]
    fn every_described_setting_is_read() {
        let settings = json!({
            "thinking": {"effort": "high", "show": "summary"},
            "reasoning_effort": "high",
            "tools": [{"name": "lookup", "description": "d", "parameters": {}, "strict": true}],
            "tool_choice": {"type": "named", "name": "lookup"},
            "parallel_calls": false,
            "temperature": 1.0,
            "top_p": 0.5,
            "top_k": 5,
            "seed": 7,
            "presence_penalty": 0.5,
            "frequency_penalty": 0.5,
            "max_tokens": 100,
            "stop": ["end"],
            "store": false,
        });
        let Value::Object(settings) = settings else { panic!("an object") };
        let schema = serde_json::to_value(TurnSettings::schema()).expect("a schema");
        let described = schema["properties"].as_object().expect("properties");
        let described: Vec<&String> = described.keys().collect();
        for name in settings.keys() {
            assert!(described.contains(&name), "{name} is not described");
        }
        assert_eq!(described.len(), settings.len(), "{described:?}");
        read_settings(settings, false).expect("all of them are known");
    }
}
