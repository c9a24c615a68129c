//! The names and reasons of losses, and the tables of them in `docs/api.md`.

/// Declares an enum of fixed terms. Each entry is one row of a table in `docs/api.md`: the terms,
/// and the description that they share.
macro_rules! terms {
    (
        $(#[$attribute:meta])*
        $name:ident $(or $other:ident)? {
            $($($variant:ident $term:literal),+ => $description:literal;)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $description] $variant,)+)+
            $(
                /// A name from a provider; [`LossSubject::named`] checks it.
                $other(String),
            )?
        }

        impl $name {
            /// The terms of each row of the table in `docs/api.md`, with their description.
            pub const ROWS: &'static [(&'static [Self], &'static str)] =
                &[$((&[$(Self::$variant),+], $description)),+];

            /// The term in headers and reports.
            pub fn as_str(&self) -> &str {
                match self {
                    $($(Self::$variant => $term,)+)+
                    $(Self::$other(name) => name,)?
                }
            }

            /// The variant of a term of the tables.
            pub(crate) fn find(term: &str) -> Option<Self> {
                let mut known = Self::ROWS.iter().flat_map(|(row, _)| *row);
                known.find(|known| known.as_str() == term).cloned()
            }
        }
    };
}

terms! {
/// The part or the setting that a loss is about.
LossSubject or Other {
    Message "message", SystemMessage "system_message", MessageName "message.name",
    Compaction "compaction" =>
        "a message, a system message, the name of its author, a summary of earlier messages";
    Text "text", TextSignature "text.signature", Citations "citations",
    CitationsQuote "citations.quote", Refusal "refusal",
    StopDetailsCategory "stop_details.category" =>
        "a text, its signature, its sources and their quotes, a refusal and its category";
    Thinking "thinking", RedactedThinking "redacted_thinking",
    ThinkingSignature "thinking.signature", ThinkingContent "thinking.content" =>
        "thinking in a message: the whole block, a redacted block, the signature, the full text \
         of summarised thinking";
    ThinkingShow "thinking.show", ThinkingBlockBinding "thinking.block_binding",
    ThinkingClearThinking "thinking.clear_thinking", Effort "effort" =>
        "members of the thinking setting (the whole setting is `thinking` too): what is shown, \
         how blocks are bound, whether earlier thinking is cleared";
    ToolCall "tool_call", ToolCallId "tool_call.id",
    ToolCallArguments "tool_call.arguments", ToolCallSignature "tool_call.signature",
    ToolCallSettings "tool_call.settings" => "a tool call";
    ToolResult "tool_result", ToolResultName "tool_result.name",
    ToolResultPart "tool_result.part", ToolResultMedia "tool_result.media",
    ToolResultIsError "tool_result.is_error", ToolResultSettings "tool_result.settings" =>
        "the result of a tool call";
    Media "media", MediaName "media.name", MediaSettings "media.settings",
    MediaFile "media.file", Document "document" =>
        "an image, audio, a video or a file; its name; how to read it; a file that a provider \
         stores; a document that is text";
    Block "block", Member "member", Extra "extra", CacheControl "cache_control",
    Caller "caller", Context "context", DeferLoading "defer_loading", State "state",
    Template "template", Raw "raw", ForwardedProps "forwardedProps", Custom "custom",
    ReasoningFile "reasoning_file", UnknownPart "unknown_part",
    MessageEncryptedValue "message.encryptedValue" =>
        "a part, a member of a part, or a setting that only the client's dialect has";
    Tool "tool", ToolName "tool.name", ToolParameters "tool.parameters",
    ToolStrict "tool.strict", ToolSettings "tool.settings", ToolChoice "tool_choice",
    ToolChoiceAllowed "tool_choice.allowed", ParallelToolCalls "parallel_tool_calls" =>
        "the tools on offer and how they may be called";
    Output "output", OutputName "output.name", OutputDescription "output.description",
    OutputStrict "output.strict" => "the format of the answer";
    MaxTokens "max_tokens", Stop "stop", Temperature "temperature", TopP "top_p",
    TopK "top_k", Seed "seed", PresencePenalty "presence_penalty",
    FrequencyPenalty "frequency_penalty" => "limits and sampling";
    N "n", Logprobs "logprobs", Modalities "modalities" =>
        "several answers, the probabilities of tokens, an answer as sound or pictures";
    User "user", CacheKey "cache_key", Store "store", StoredResponse "stored_response",
    CachedContent "cached_content", StoredPrompt "prompt", StoredAudio "audio",
    Container "container", CountTokens "count_tokens" =>
        "the end user, the cache key, whether the response is stored; a response, a part of the \
         conversation, a prompt, a spoken answer or a container that a provider stores and the request \
         refers to; the token count";
}
}

terms! {
/// The reason of a loss.
#[derive(Copy)]
LossReason {
    NoPlace "no_place" => "the backend's dialect has no field for it";
    NoWord "no_word" =>
        "the canonical format has no term for it, so only backends of the client's dialect \
         could get it";
    ForeignDialect "foreign_dialect", ForeignFile "foreign_file" =>
        "it belongs to another dialect; it is a file that another provider stores";
    Role "role" => "a message of this role cannot contain it";
    AsText "as_text", AsFunction "as_function" =>
        "it was sent as text; a tool that takes free text was sent as a function with one text \
         parameter";
    Empty "empty" => "it was empty";
    MediaType "media_type", NotInline "not_inline" =>
        "the backend does not accept this media type, or not by URL";
    Range "range", TooMany "too_many", Characters "characters" =>
        "a number, a list or a name was changed to what the backend accepts";
    NotJson "not_json", NotAnObject "not_an_object", Schema "schema" =>
        "it had to be JSON; it had to be an object; the schema had to be simpler: objects are \
         closed, and bounds are written into descriptions";
    Required "required" => "the backend requires it";
    NotWritten "not_written" => "the gateway's own store could not be written";
    Repeated "repeated" => "a result came twice";
    NoCall "no_call" => "a result has no call";
    Missing "missing" => "a call has no result";
    Unfinished "unfinished" => "a call was cut off";
    Unknown "unknown" => "its origin is unknown";
    GoesFirst "goes_first", TextsFirst "texts_first", TextsJoined "texts_joined",
    Moved "moved" => "it was moved to the position that the dialect requires";
    SystemInstruction "system_instruction", UserPart "user_part" =>
        "a system text became the instruction, or a part of a user message";
    NoTools "no_tools" => "there are no tools to choose from";
    NoToolsOffered "no_tools_offered" => "no tool may be called, so none is offered";
    OneAnswer "one_answer" => "there is one answer only";
    Stateless "stateless" => "nothing is stored here";
    AlwaysStrict "always_strict" => "schemas are always enforced";
    JsonWithoutSchema "json_without_schema" => "JSON needs a schema";
    Estimated "estimated" => "the count is an estimate";
    Off "off" => "thinking is off, or the backend's `cache` is `off`";
    Disabled "disabled" => "thinking had to be switched off";
    Default "default" => "the model decides";
    Budget "budget" => "the budget applies";
    Summaries "summaries" => "only summaries are shown";
    NotShown "not_shown" => "nothing is shown";
    Effort "effort", NotKnown "not_known", BudgetAsEffort "budget_as_effort",
    EffortAsBudget "effort_as_budget", AdaptiveAsBudget "adaptive_as_budget",
    OnOrOff "on_or_off", BudgetRange "budget_range", CannotBeSet "cannot_be_set",
    AlwaysThinks "always_thinks", BetweenTools "between_tools",
    ModelDoesNotThink "model_does_not_think" =>
        "how the thinking setting was changed; see [models.md](models.md)";
    Thinking "thinking" => "refused while the model thinks";
    Model "model" => "refused by this model";
    MaxTokens "max_tokens" => "there is not enough room";
    MaxOutput "max_output" => "it is more than the model writes";
    ModelUnknown "model_unknown" => "a limit for an unknown model";
    ThinkingCompat "thinking_compat" => "by configuration";
    OpenToolLoop "open_tool_loop" => "an open tool loop must start with thinking that is missing";
}
}

impl LossSubject {
    /// The subject with a provider's name. Losses appear in headers, so a name that is not a plain
    /// word becomes `block`.
    pub fn named(name: &str) -> Self {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if !(1..=64).contains(&name.len()) || !name.bytes().all(is_plain) {
            return Self::Block;
        }
        Self::find(name).unwrap_or_else(|| Self::Other(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes one table of the page. Each row has terms and their description.
    fn table<'a>(head: &str, rows: impl Iterator<Item = (Vec<&'a str>, &'a str)>) -> String {
        let mut table = format!("{head}\n|---|---|\n");
        for (terms, description) in rows {
            table += &format!("| `{}` | {description} |\n", terms.join("`, `"));
        }
        table
    }

    #[test]
    fn tables_in_the_api_reference_list_all_terms() {
        let subjects = LossSubject::ROWS.iter().map(|(subjects, description)| {
            (subjects.iter().map(LossSubject::as_str).collect(), *description)
        });
        let reasons = LossReason::ROWS.iter().map(|(reasons, description)| {
            (reasons.iter().map(LossReason::as_str).collect(), *description)
        });
        let tables = format!(
            "<!-- losses -->\n{}\n{}<!-- /losses -->",
            table("| part or setting | what it is |", subjects),
            table("| reason | why |", reasons),
        );

        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
        let page = std::fs::read_to_string(path).expect("the page is read");
        let start = page.find("<!-- losses -->").expect("the section begins");
        let end_marker = "<!-- /losses -->";
        let end = page.find(end_marker).expect("the section ends") + end_marker.len();
        if std::env::var_os("BLESS").is_some() {
            let blessed = format!("{}{tables}{}", &page[..start], &page[end..]);
            std::fs::write(path, blessed).expect("the page is written");
            return;
        }
        assert!(
            page[start..end] == tables,
            "docs/api.md does not match the terms of losses; \
             run with `BLESS=1` to write it:\n{tables}"
        );
    }

    #[test]
    fn name_of_a_known_subject_becomes_its_variant() {
        assert_eq!(LossSubject::named("tool_call.id"), LossSubject::ToolCallId);
        assert_eq!(LossSubject::named("verbosity"), LossSubject::Other("verbosity".to_owned()));
    }
}
