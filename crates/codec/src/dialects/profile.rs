//! What the gateway has to know about an upstream dialect, as data.
//!
//! A dialect has one [`Profile`] for each of its variants. It says what of the past goes back, how a
//! model is asked to think, and which shapes of requests the provider refuses. The gateway decides by
//! these facts alone, so a new dialect needs no line of code there.

use throughline_canonical::{Effort, ThinkingForm};

use super::{gemini, openai_chat};

/// An upstream dialect in one of its variants. Many fields: each one is a fact that the gateway needs.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The name of the variant in the configuration; empty for the plain dialect.
    pub name: &'static str,
    /// The data of the dialect's own readers and writers.
    pub server: Server,
    /// The path of the model list.
    pub models_path: &'static str,
    /// The header that carries the API key.
    pub key_header: &'static str,
    /// Headers that the provider requires. A request that has one of them keeps its own value.
    pub headers: &'static [(&'static str, &'static str)],
    /// What of the past goes back.
    pub replay: Replay,
    /// How a model is asked to think.
    pub thinking: ThinkingControls,
    /// The order of messages that the provider takes.
    pub order: MessageOrder,
    /// The rules for whole thinking blocks.
    pub blocks: BlockRules,
    /// The provider refuses a request without the thinking of an earlier turn.
    pub misses_earlier_thinking: bool,
    /// The server at this address stores responses, so an id of one finds it.
    pub keeps_responses: bool,
    /// The model's tool calls are signed, and refused without a signature.
    pub signs_calls: bool,
    /// The names of tools that the provider takes.
    pub tool_names: ToolNames,
    /// The text of a reply may be what the model wrote, with reasoning and tool calls inside.
    pub raw_text: bool,
    /// The tags around reasoning in the text of a reply, where reasoning was asked for.
    pub thinking_tags: Option<&'static str>,
    /// The path names the model, and not the body.
    pub model_in_path: bool,
    /// Another dialect that the same address serves, and that models need for reasoning.
    pub reasoning_dialect: Option<&'static str>,
    /// The breakpoints of the prompt cache.
    pub cache_breakpoints: BreakpointRules,
    /// A request of this dialect can name an earlier reply to continue from, by its id.
    pub has_response_ids: bool,
    /// The profile for requests with unsigned blocks, where it differs.
    pub for_unsigned: Option<&'static Profile>,
}

impl Profile {
    /// The name and the value of the header that carries this API key.
    pub fn key_header(&self, key: &str) -> (&'static str, String) {
        let value = match self.key_header {
            BEARER => format!("Bearer {key}"),
            _ => key.to_owned(),
        };
        (self.key_header, value)
    }
}

/// The header most providers read a key from, after the word `Bearer`.
pub(super) const BEARER: &str = "authorization";

/// The data of the dialect's own readers and writers.
#[derive(Clone, Copy, Debug)]
pub enum Server {
    /// There is none.
    Plain,
    /// The server accepts blocks without a signature.
    Unsigned,
    /// One of the chat servers.
    Chat(&'static openai_chat::variants::Variant),
    /// One of the servers of Gemini's models.
    Gemini(gemini::Variant),
}

/// The fate of each part of the past that was made by the target itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Thinking of the present turn.
    pub thinking: Treatment,
    /// Thinking of an earlier turn.
    pub earlier: Treatment,
    /// Reasoning that its maker encrypted.
    pub redacted: Treatment,
    /// The signature of a tool call.
    pub call: Treatment,
    /// A tool call of the present turn that another maker made.
    pub foreign_call: Treatment,
    /// The signature of a text.
    pub text: Treatment,
}

/// The fate of a part of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// It is sent unchanged.
    Verbatim,
    /// Its text is sent, without a signature.
    Text,
    /// It is dropped, and nothing is lost: this upstream never reads it.
    Unneeded,
    /// It is dropped, and that is a loss.
    Omitted,
    /// A skip-validation value is sent if the model requires a signature.
    Skipped,
}

impl Replay {
    /// Only text and calls go back.
    pub const NOTHING: Self = Self {
        thinking: Treatment::Unneeded,
        earlier: Treatment::Unneeded,
        redacted: Treatment::Unneeded,
        call: Treatment::Unneeded,
        foreign_call: Treatment::Unneeded,
        text: Treatment::Unneeded,
    };
    /// Signed blocks go back unchanged, all of them.
    pub const SIGNED_BLOCKS: Self = Self {
        thinking: Treatment::Verbatim,
        earlier: Treatment::Verbatim,
        redacted: Treatment::Verbatim,
        ..Self::NOTHING
    };
    /// Reasoning goes back as text, in a member of its own.
    pub const FIELD: Self =
        Self { thinking: Treatment::Text, earlier: Treatment::Text, ..Self::NOTHING };
    /// Reasoning of the present turn goes back as text.
    pub const PRESENT_TURN: Self = Self { thinking: Treatment::Text, ..Self::NOTHING };
    /// The same, with signatures on tool calls.
    pub const fn with_signed_calls(self) -> Self {
        Self { call: Treatment::Verbatim, foreign_call: Treatment::Skipped, ..self }
    }
}

/// How a model is asked to think. Many fields: each one is a fact about the wire.
#[derive(Clone, Copy, Debug)]
pub struct ThinkingControls {
    /// Thinking can be switched off.
    pub off: bool,
    /// Thinking can be off except between tool calls.
    pub between_tools: bool,
    /// When thinking can only be switched on or off, without an amount.
    pub on: SwitchOn,
    /// The forms of models that can be left to decide how much they think.
    pub automatic: &'static [Option<ThinkingForm>],
    /// The efforts, in their order.
    pub efforts: &'static [Effort],
    /// Which models take an effort.
    pub efforts_for: EffortsFor,
    /// Which models take a budget.
    pub budget: BudgetFor,
    /// Nothing can be set: every model here thinks.
    pub always: bool,
    /// An effort is written also for a model that thinks by default.
    pub writes_effort: bool,
    /// The setting is always written: a server that gets none decides by itself.
    pub always_written: bool,
    /// The setting has modes: an effort goes with adaptive thinking, and without a mode nothing is shown.
    pub modes: bool,
    /// The server passes the setting on to another server.
    pub passes_on: bool,
    /// A request must limit its output.
    pub needs_max_tokens: bool,
    /// The smallest budget.
    pub min_budget: u64,
    /// A budget must be smaller than the limit of the output.
    pub budget_below_limit: bool,
    /// Thinking counts towards the limit of the output.
    pub shares_limit: bool,
    /// Unknown models do not take sampling settings while they think.
    pub no_sampling_while_thinking: bool,
    /// What is shown of the thinking.
    pub shows: Shows,
    /// The full text can be asked for also where a summary is usual.
    pub has_details: bool,
}

/// When thinking can only be switched on or off, without an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchOn {
    /// Never.
    Never,
    /// Always.
    Always,
    /// For models that can be off.
    IfNotFixed,
    /// For models without efforts that can be off.
    IfUngraded,
}

/// Which models take an effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffortsFor {
    /// Models that have efforts or levels.
    Graded,
    /// All models but those that are only on or off.
    AllButSwitches,
}

/// Which models take a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetFor {
    /// None.
    NoModel,
    /// Models that think by a budget.
    Budgeted,
    /// The same, and models that are only on or off.
    BudgetedOrSwitches,
}

/// What is shown of a model's thinking at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Nothing.
    Nothing,
    /// The full text.
    Full,
    /// A summary.
    Summary,
    /// The full text, or a summary where the model has only that.
    FullOrModel,
    /// A summary, or the full text where the model has that.
    SummaryOrModel,
}

impl ThinkingControls {
    /// Thinking can be switched off, and nothing else.
    pub const OFF: Self = Self {
        off: true,
        between_tools: false,
        on: SwitchOn::Never,
        automatic: &[],
        efforts: &[],
        efforts_for: EffortsFor::Graded,
        budget: BudgetFor::NoModel,
        always: false,
        writes_effort: false,
        always_written: false,
        modes: false,
        passes_on: false,
        needs_max_tokens: false,
        min_budget: 1,
        budget_below_limit: false,
        shares_limit: false,
        no_sampling_while_thinking: false,
        shows: Shows::Full,
        has_details: false,
    };
}

/// The breakpoints of a provider's prompt cache: the ends of the prefixes that it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakpointRules {
    /// The models whose requests can have breakpoints.
    pub taken_by: Models,
    /// The models whose prompts are cached up to breakpoints only.
    pub needed_by: Models,
    /// Tools can have breakpoints too.
    pub tools: bool,
    /// The most breakpoints that a request may have.
    pub most: usize,
}

/// A set of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Models {
    /// None.
    NoModel,
    /// All.
    All,
    /// Those whose name contains one of these parts.
    Named(&'static [&'static str]),
    /// OpenAI's models from this version on, such as `gpt-5.6`.
    GptFrom(u32, u32),
}

impl Models {
    /// Whether a model belongs to the set.
    pub fn contain(self, model: &str) -> bool {
        match self {
            Self::NoModel => false,
            Self::All => true,
            Self::Named(parts) => {
                let model = model.to_ascii_lowercase();
                parts.iter().any(|part| model.contains(part))
            }
            Self::GptFrom(major, minor) => gpt_version(model) >= Some((major, minor)),
        }
    }
}

impl BreakpointRules {
    /// There are no breakpoints: the provider caches by itself, or not at all.
    pub const NONE: Self =
        Self { taken_by: Models::NoModel, needed_by: Models::NoModel, tools: false, most: 4 };
    /// OpenAI's models cache by themselves. The newer ones also take breakpoints.
    pub(super) const OPENAI: Self = Self { taken_by: Models::GptFrom(5, 6), ..Self::NONE };
}

/// The version in a name such as `openai/gpt-6.1-sol`.
fn gpt_version(model: &str) -> Option<(u32, u32)> {
    let version = model.rsplit('/').next()?.strip_prefix("gpt-")?.split('-').next()?;
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The order of messages that a provider takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageOrder {
    /// Turns of user and model, the user first. Tool results are part of the user's turn.
    Turns,
    /// Any order, but tool results come directly after their calls.
    ResultsAfterCalls,
}

/// The rules for whole thinking blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRules {
    /// There are no blocks.
    None,
    /// The provider reads blocks, also unsigned ones, and can be asked to drop bound ones.
    Native,
    /// A server in front of such a provider passes blocks on. It wants a signature on each.
    PassedOn,
}

/// The names of tools that a provider takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolNames {
    /// Any.
    Any,
    /// Letters, digits, `_` and `-`, `max` at most.
    Plain {
        /// The longest name.
        max: usize,
    },
    /// The same with `.` and `:`, and a letter or `_` first.
    Dotted {
        /// The longest name.
        max: usize,
    },
}

impl ToolNames {
    /// The longest name the provider takes, if it would refuse this one.
    pub fn refuses(self, name: &str) -> Option<usize> {
        let allowed = |extra: &[u8]| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || extra.contains(&byte);
            name.bytes().all(allowed)
        };
        let (max, good) = match self {
            Self::Any => return None,
            Self::Plain { max } => (max, !name.is_empty() && allowed(b"_-")),
            Self::Dotted { max } => {
                let begins = |first: char| first.is_ascii_alphabetic() || first == '_';
                (max, name.starts_with(begins) && allowed(b"_-.:"))
            }
        };
        (!good || name.len() > max).then_some(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_are_refused_for_characters_and_length() {
        let plain = ToolNames::Plain { max: 8 };
        let dotted = ToolNames::Dotted { max: 8 };
        for (name, by_plain, by_dotted) in [
            ("get_row", None, None),
            ("get-row", None, None),
            ("get.row", Some(8), None),
            ("9lives", None, Some(8)),
            ("", Some(8), Some(8)),
            ("far_too_long", Some(8), Some(8)),
            ("größe", Some(8), Some(8)),
        ] {
            assert_eq!(plain.refuses(name), by_plain, "{name}");
            assert_eq!(dotted.refuses(name), by_dotted, "{name}");
            assert_eq!(ToolNames::Any.refuses(name), None, "{name}");
        }
    }
}
