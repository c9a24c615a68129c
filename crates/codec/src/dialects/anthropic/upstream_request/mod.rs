//! Writes a canonical request as a body for a provider: settings and tools. The conversation is in
//! `upstream_messages`. The bytes are written by hand so that the arguments of tool calls keep the
//! model's spelling.

use std::borrow::Cow;

use serde_json::{Map, Value};
use throughline_canonical::{
    Amount, CacheBreakpoints, CachePlace, Effort, Loss, LossReason, LossSubject, Lossy, Output,
    Request, Show, ThinkingSetting, Tool, ToolChoice,
};

pub(super) use self::messages::write_thinking;
use self::messages::{write_text, write_turns};
use super::client_request::KNOWN;
use super::{BETA_BINDING_CONTROLS, BETA_HEADER, EFFORTS, NAME, VERSION_WITH_SAMPLING, record};
use crate::dialects::profile::Server;
use crate::dialects::shared::cache_control::{CACHE_CONTROL, add_breakpoint, breakpoint_value};
use crate::dialects::shared::losses::omit_foreign_members;
use crate::dialects::{Outgoing, Target};
use crate::json::{ObjectWriter, quote_bytes};

pub(super) mod messages;
pub(super) mod schema;

/// Members that require a beta header.
const BETAS: &[(&str, &str)] = &[
    ("context_management", "context-management-2025-06-27"),
    ("compaction", "compact-2026-09-04"),
    ("fallbacks", "server-side-fallback-2026-07-01"),
    ("fallback_credit_token", "fallback-credit-2026-07-01"),
    ("thread", "message-threads-2026-08-12"),
];
const BETA_TASK_BUDGETS: &str = "task-budgets-2026-03-13";
const BETA_DISPLAY_UPDATES: &str = "thinking-display-updates-2026-08-18";

/// The mode without thinking before the answer and with short notes between calls.
pub(super) const BETWEEN_TOOLS: &str = "between_tools";

/// The default limit. The gateway knows the limit of the model.
const MAX_TOKENS: u64 = 4096;

/// Writes a request.
pub(super) fn write(request: &Request, target: &Target<'_>) -> Lossy<Outgoing> {
    let mut writing = RequestWriter {
        losses: Vec::new(),
        betas: Vec::new(),
        unsigned: matches!(target.profile.server, Server::Unsigned),
        breakpoints: request.cache_breakpoints.clone(),
    };
    let nothing = Map::new();
    let extra = request.extra.get(NAME).unwrap_or(&nothing);
    let mut outgoing = Outgoing { path: "/v1/messages".to_owned(), ..Outgoing::default() };
    let mut body = ObjectWriter::new(&mut outgoing.body);
    body.text("model", target.model);
    body.count("max_tokens", request.max_tokens.unwrap_or(MAX_TOKENS));
    if request.max_tokens.is_none() {
        writing.adapted(LossSubject::MaxTokens, LossReason::Required);
    }
    if request.stream {
        body.raw("stream", b"true");
    }
    writing.thinking(request, extra, &mut body);
    writing.output_config(request, extra, &mut body);
    writing.sampling(request, &mut body);
    let version = VERSION_WITH_SAMPLING.to_owned();
    outgoing.headers.push(("anthropic-version", version));
    writing.stop(request, &mut body);
    writing.metadata(request, extra, &mut body);
    writing.system(request, &mut body);
    writing.tools(request, &mut body);
    let end = request.cache_breakpoints.at(CachePlace::End).map(breakpoint_value);
    // Callers of other dialects can write it as a member for this one.
    if let Some(breakpoint) = end.as_ref().or(extra.get(CACHE_CONTROL)) {
        body.value(CACHE_CONTROL, breakpoint);
    }
    for (key, value) in extra {
        if !KNOWN.contains(&key.as_str()) {
            let beta = BETAS.iter().find(|(member, _)| member == key);
            writing.betas.extend(beta.map(|(_, beta)| *beta));
            body.value(key, value);
        }
    }
    omit_foreign_members(request, NAME, &mut writing.losses);
    if request.cache_key.is_some() {
        writing.omitted(LossSubject::CacheKey, LossReason::NoPlace);
    }
    let turns = writing.turns(&request.messages);
    write_turns(&turns, body.key("messages"));
    body.end();
    if !writing.betas.is_empty() {
        outgoing.headers.push((BETA_HEADER, writing.betas.join(",")));
    }
    Lossy { value: outgoing, losses: writing.losses }
}

/// Switches thinking off as far as models allow that have no other mode than between tools.
pub(super) fn think_between_tools(request: &mut Request) {
    request.thinking.amount = Some(Amount::Off);
    let extra = request.extra.entry(NAME.to_owned()).or_default();
    let thinking = extra.entry("thinking").or_insert_with(|| Map::new().into());
    if let Value::Object(thinking) = thinking {
        thinking.insert("type".to_owned(), BETWEEN_TOOLS.into());
    }
}

/// Asks the provider to drop blocks that are bound to another conversation.
pub(super) fn drop_bound(request: &mut Request) {
    let amount = &mut request.thinking.amount;
    // Needs a mode. Models that bind blocks think adaptively by default.
    match *amount {
        None => *amount = Some(Amount::Adaptive { effort: None }),
        Some(Amount::Effort { effort }) => {
            let effort = Some(effort);
            *amount = Some(Amount::Adaptive { effort });
        }
        _ => {}
    }
    let extra = request.extra.entry(NAME.to_owned()).or_default();
    let thinking = extra.entry("thinking").or_insert_with(|| Map::new().into());
    if let Value::Object(thinking) = thinking {
        let behaviour = serde_json::json!({"prefix_mismatch_behavior": "drop_block"});
        thinking.insert("block_binding".to_owned(), behaviour);
    }
}

/// State while a request is written.
pub(super) struct RequestWriter {
    pub(super) losses: Vec<Loss>,
    betas: Vec<&'static str>,
    /// The target accepts thinking without a signature.
    pub(super) unsigned: bool,
    /// The breakpoints for the prompt cache.
    pub(super) breakpoints: CacheBreakpoints,
}

impl RequestWriter {
    pub(super) fn omitted(&mut self, part: LossSubject, reason: LossReason) {
        record(&mut self.losses, Loss::PartOmitted { part, reason });
    }

    pub(super) fn adapted(&mut self, setting: LossSubject, reason: LossReason) {
        record(&mut self.losses, Loss::SettingAdapted { setting, reason });
    }

    fn thinking(
        &mut self,
        request: &Request,
        extra: &Map<String, Value>,
        body: &mut ObjectWriter<'_>,
    ) {
        let setting = &request.thinking;
        let nothing = Map::new();
        let rest = match extra.get("thinking") {
            Some(Value::Object(rest)) => rest,
            _ => &nothing,
        };
        let mode = match rest.get("type").and_then(Value::as_str) {
            Some(BETWEEN_TOOLS) if setting.amount == Some(Amount::Off) => Some(BETWEEN_TOOLS),
            _ => mode(setting),
        };
        let off = setting.amount == Some(Amount::Off);
        if mode.is_none() && setting.show.is_some() {
            self.omitted(LossSubject::ThinkingShow, LossReason::Off);
        }
        let mut others: Vec<_> =
            rest.iter().filter(|(key, _)| !["type", "display"].contains(&key.as_str())).collect();
        if off && !others.is_empty() {
            self.omitted(LossSubject::ThinkingBlockBinding, LossReason::Off);
            others.clear();
        }
        if mode.is_none() && others.is_empty() {
            return;
        }
        let mut thinking = body.object("thinking");
        if let Some(mode) = mode {
            thinking.text("type", mode);
        }
        if let Some(Amount::Budget { tokens }) = setting.amount {
            thinking.count("budget_tokens", tokens);
        }
        let display = match setting.show {
            _ if off || mode.is_none() => None,
            None => None,
            Some(Show::Hidden) => Some("omitted"),
            // This dialect shows summaries only.
            Some(Show::Summary | Show::Full) => match rest.get("display").and_then(Value::as_str) {
                Some("updates") => {
                    self.betas.push(BETA_DISPLAY_UPDATES);
                    Some("updates")
                }
                _ => Some("summarized"),
            },
        };
        if let Some(display) = display {
            thinking.text("display", display);
        }
        for (key, value) in others {
            if key == "block_binding" {
                self.betas.push(BETA_BINDING_CONTROLS);
            }
            thinking.value(key, value);
        }
        thinking.end();
    }

    fn output_config(
        &mut self,
        request: &Request,
        extra: &Map<String, Value>,
        body: &mut ObjectWriter<'_>,
    ) {
        let mut config = match extra.get("output_config") {
            Some(Value::Object(config)) => config.clone(),
            _ => Map::new(),
        };
        if config.contains_key("task_budget") {
            self.betas.push(BETA_TASK_BUDGETS);
        }
        match request.thinking.amount {
            Some(Amount::Effort { effort } | Amount::Adaptive { effort: Some(effort) }) => {
                let known = effort.nearest(&EFFORTS).unwrap_or(Effort::Low);
                if known != effort {
                    self.adapted(LossSubject::Thinking, LossReason::Effort);
                }
                config.insert("effort".to_owned(), known.word().into());
            }
            // The kept members belong to a setting that has changed.
            Some(Amount::On | Amount::Adaptive { .. }) => {
                config.shift_remove("effort");
            }
            None | Some(Amount::Off | Amount::Budget { .. }) => {}
        }
        match &request.output {
            Output::Text => {}
            Output::Json => self.adapted(LossSubject::Output, LossReason::JsonWithoutSchema),
            Output::Schema { name, schema, strict } => {
                if name.is_some() {
                    self.omitted(LossSubject::OutputName, LossReason::NoPlace);
                }
                if *strict == Some(false) {
                    self.adapted(LossSubject::OutputStrict, LossReason::AlwaysStrict);
                }
                let closed = schema::closed(schema);
                if closed != *schema {
                    self.adapted(LossSubject::Output, LossReason::Schema);
                }
                let format = serde_json::json!({"type": "json_schema", "schema": closed});
                config.insert("format".to_owned(), format);
            }
        }
        if !config.is_empty() {
            body.value("output_config", &Value::Object(config));
        }
    }

    /// The gateway knows which models accept these.
    fn sampling(&mut self, request: &Request, body: &mut ObjectWriter<'_>) {
        let sampling = &request.sampling;
        for (is_set, part) in [
            (sampling.seed.is_some(), LossSubject::Seed),
            (sampling.presence_penalty.is_some(), LossSubject::PresencePenalty),
            (sampling.frequency_penalty.is_some(), LossSubject::FrequencyPenalty),
        ] {
            if is_set {
                self.omitted(part, LossReason::NoPlace);
            }
        }
        let temperature = sampling.temperature.map(|heat| {
            if heat > 1.0 {
                self.adapted(LossSubject::Temperature, LossReason::Range);
            }
            heat.clamp(0.0, 1.0)
        });
        for (key, value) in [
            ("temperature", temperature.map(Value::from)),
            ("top_p", sampling.top_p.map(Value::from)),
            ("top_k", sampling.top_k.map(Value::from)),
        ] {
            if let Some(value) = value {
                body.value(key, &value);
            }
        }
    }

    fn stop(&mut self, request: &Request, body: &mut ObjectWriter<'_>) {
        let (stop, blank): (Vec<&String>, Vec<_>) =
            request.stop.iter().partition(|stop| !stop.trim().is_empty());
        if blank.iter().any(|stop| stop.is_empty()) {
            self.omitted(LossSubject::Stop, LossReason::Empty);
        }
        // The provider refuses sequences of white space.
        if blank.iter().any(|stop| !stop.is_empty()) {
            self.omitted(LossSubject::Stop, LossReason::Characters);
        }
        if !stop.is_empty() {
            list(body.key("stop_sequences"), stop, |out, stop| {
                quote_bytes(stop, out);
            });
        }
    }

    fn metadata(
        &mut self,
        request: &Request,
        extra: &Map<String, Value>,
        body: &mut ObjectWriter<'_>,
    ) {
        let rest = extra.get("metadata").and_then(Value::as_object);
        if request.user.is_none() && rest.is_none() {
            return;
        }
        let mut metadata = body.object("metadata");
        if let Some(user) = &request.user {
            metadata.text("user_id", user);
        }
        for (key, value) in rest.into_iter().flatten() {
            metadata.value(key, value);
        }
        metadata.end();
    }

    fn system(&mut self, request: &Request, body: &mut ObjectWriter<'_>) {
        let mut texts = Vec::new();
        for (index, text) in request.system.iter().enumerate() {
            let breakpoint = self.breakpoints.at(CachePlace::System { index });
            if self.is_sendable(text) {
                texts.push((text, breakpoint));
            } else if breakpoint.is_some() {
                self.omitted(LossSubject::CacheControl, LossReason::Empty);
            }
        }
        match texts[..] {
            [] => {}
            [(text, _)] if self.breakpoints.is_empty() => {
                body.text("system", text);
            }
            _ => list(body.key("system"), texts, |out, (text, breakpoint)| {
                write_text(out, text);
                breakpoint.inspect(|time| add_breakpoint(out, *time));
            }),
        }
    }

    fn tools(&mut self, request: &Request, body: &mut ObjectWriter<'_>) {
        let mut tools = Vec::new();
        for (index, tool) in request.tools.iter().enumerate() {
            match tool {
                Tool::Opaque { dialect, .. } if dialect != NAME => {
                    self.omitted(LossSubject::Tool, LossReason::ForeignDialect);
                    if self.breakpoints.at(CachePlace::Tool { index }).is_some() {
                        self.omitted(LossSubject::CacheControl, LossReason::ForeignDialect);
                    }
                }
                tool => tools.push((tool, self.breakpoints.at(CachePlace::Tool { index }))),
            }
        }
        if tools.is_empty() {
            // Providers reject a choice without tools.
            if let Some(ToolChoice::Required | ToolChoice::Named { .. }) = request.tool_choice {
                self.adapted(LossSubject::ToolChoice, LossReason::NoTools);
            }
            return;
        }
        list(body.key("tools"), tools, |out, (tool, breakpoint)| {
            self.tool(out, tool);
            breakpoint.inspect(|time| add_breakpoint(out, *time));
        });
        let single = request.parallel_calls == Some(false);
        let (kind, name) = match &request.tool_choice {
            None if single => ("auto", None),
            None => return,
            Some(ToolChoice::Auto) => ("auto", None),
            Some(ToolChoice::Required) => ("any", None),
            Some(ToolChoice::None) => ("none", None),
            Some(ToolChoice::Named { name }) => ("tool", Some(name)),
        };
        let mut choice = body.object("tool_choice");
        choice.text("type", kind);
        if let Some(name) = name {
            choice.text("name", name);
        }
        // Without calls there are no parallel calls.
        if let Some(parallel) = request.parallel_calls
            && kind != "none"
        {
            let single: &[u8] = if parallel { b"false" } else { b"true" };
            choice.raw("disable_parallel_tool_use", single);
        }
        choice.end();
    }

    fn tool(&mut self, out: &mut Vec<u8>, tool: &Tool) {
        match tool {
            Tool::Function { name, description, parameters, strict } => {
                let mut tool = ObjectWriter::new(out);
                tool.text("name", name);
                if let Some(description) = description {
                    tool.text("description", description);
                }
                let mut input = self.schema(parameters);
                if *strict == Some(true) {
                    let closed = schema::closed(&input);
                    if closed != *input {
                        self.adapted(LossSubject::ToolParameters, LossReason::Schema);
                        input = Cow::Owned(closed);
                    }
                }
                tool.value("input_schema", &input);
                if let Some(strict) = strict {
                    tool.value("strict", &Value::Bool(*strict));
                }
                tool.end();
            }
            Tool::Opaque { value, .. } => out.extend_from_slice(value.to_string().as_bytes()),
        }
    }

    /// Providers require `type: object`.
    fn schema<'a>(&mut self, parameters: &'a Value) -> Cow<'a, Value> {
        let object = || ("type".to_owned(), "object".into());
        match parameters {
            Value::Object(members) if members.contains_key("type") => Cow::Borrowed(parameters),
            Value::Object(members) => {
                let typed: Map<_, _> = [object()].into_iter().chain(members.clone()).collect();
                Cow::Owned(typed.into())
            }
            Value::Null => Cow::Owned(Map::from_iter([object()]).into()),
            _ => {
                self.adapted(LossSubject::ToolParameters, LossReason::NotAnObject);
                Cow::Owned(Map::from_iter([object()]).into())
            }
        }
    }
}

/// The mode for a setting; `None` leaves the default of the model.
fn mode(setting: &ThinkingSetting) -> Option<&'static str> {
    match (setting.amount, setting.show) {
        (Some(Amount::Budget { .. }), _) => Some("enabled"),
        (Some(Amount::On | Amount::Adaptive { .. }), _) => Some("adaptive"),
        // `display` requires a mode.
        (Some(Amount::Effort { .. }), Some(_)) => Some("adaptive"),
        (Some(Amount::Off), _) => Some("disabled"),
        (None | Some(Amount::Effort { .. }), _) => None,
    }
}

/// Writes a list.
pub(super) fn list<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}
