//! Writes a request to a provider in the form of its kind of server: everything but the messages.

use serde_json::{Map, Value, json};
use throughline_canonical::{
    Amount, CachePlace, Effort, Loss, LossReason, LossSubject, Lossy, Output, Request, Show,
    ThinkingSetting, Tool, ToolChoice,
};

use super::NAME;
use super::variants::{self, Setting, Variant};
use crate::dialects::shared::cache_control::{
    CACHE_CONTROL, PROMPT_CACHE_BREAKPOINT, PartBreakpoints,
};
use crate::dialects::shared::losses::{omit_foreign_members, unknown_member};
use crate::dialects::{Outgoing, Target};

mod messages;

/// Writes a request.
pub(super) fn write(request: &Request, target: &Target<'_>) -> Lossy<Outgoing> {
    let variant = target.profile.chat();
    let mut writer = RequestWriter { variant, body: Map::new(), losses: Vec::new() };
    writer.body.insert("model".to_owned(), target.model.into());
    let member = if variant.official { PROMPT_CACHE_BREAKPOINT } else { CACHE_CONTROL };
    let breakpoints = PartBreakpoints::new(request, target, member, &mut writer.losses);
    let messages = messages::write(request, variant, &breakpoints, &mut writer.losses);
    writer.body.insert("messages".to_owned(), messages.into());
    writer.settings(request);
    writer.tools(request, &breakpoints);
    writer.thinking(&request.thinking);
    writer.extra(request);
    Lossy {
        value: Outgoing {
            path: variant.path.to_owned(),
            body: Value::Object(writer.body).to_string().into_bytes(),
            ..Outgoing::default()
        },
        losses: writer.losses,
    }
}

struct RequestWriter {
    variant: &'static Variant,
    body: Map<String, Value>,
    losses: Vec<Loss>,
}

impl RequestWriter {
    /// Writes a member if this kind of server accepts it.
    fn put(&mut self, name: &'static str, value: impl Into<Value>) {
        if self.variant.takes(name) {
            self.body.insert(name.to_owned(), value.into());
        } else {
            // Parts with canonical names.
            let part = match name {
                "prompt_cache_key" => LossSubject::CacheKey,
                "response_format" => LossSubject::Output,
                name => LossSubject::named(name),
            };
            self.omitted(part, LossReason::NoPlace);
        }
    }

    fn put_some<T: Into<Value>>(&mut self, name: &'static str, value: Option<T>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    fn omitted(&mut self, part: LossSubject, reason: LossReason) {
        self.losses.push(Loss::PartOmitted { part, reason });
    }

    fn adapted(&mut self, setting: LossSubject, reason: LossReason) {
        self.losses.push(Loss::SettingAdapted { setting, reason });
    }

    fn settings(&mut self, request: &Request) {
        self.put_some(self.variant.limit, request.max_tokens);
        let sampling = &request.sampling;
        self.put_some("temperature", sampling.temperature);
        self.put_some("top_p", sampling.top_p);
        self.put_some("top_k", sampling.top_k);
        self.put_some(self.variant.seed, sampling.seed);
        self.put_some("presence_penalty", sampling.presence_penalty);
        self.put_some("frequency_penalty", sampling.frequency_penalty);
        if !request.stop.is_empty() {
            if request.stop.len() > self.variant.stops {
                self.adapted(LossSubject::Stop, LossReason::TooMany);
            }
            let stop: Vec<&str> =
                request.stop.iter().take(self.variant.stops).map(String::as_str).collect();
            self.put("stop", stop);
        }
        self.output(&request.output);
        self.put_some("user", request.user.as_deref());
        self.put_some("prompt_cache_key", request.cache_key.as_deref());
        if request.stream {
            self.put("stream", true);
            // Servers without this option always report usage.
            if self.variant.takes("stream_options") {
                self.put("stream_options", json!({"include_usage": true}));
            }
        }
    }

    fn output(&mut self, output: &Output) {
        let format = match output {
            Output::Text => return,
            Output::Json => json!({"type": "json_object"}),
            Output::Schema { .. } if !self.variant.schemas => {
                self.adapted(LossSubject::Output, LossReason::NoPlace);
                json!({"type": "json_object"})
            }
            Output::Schema { name, schema, strict } => {
                let mut inner = Map::new();
                // The name is required.
                let name = name.as_deref().unwrap_or("answer");
                inner.insert("name".to_owned(), name.into());
                inner.insert("schema".to_owned(), schema.clone());
                if let Some(strict) = strict {
                    inner.insert("strict".to_owned(), (*strict).into());
                }
                json!({"type": "json_schema", "json_schema": inner})
            }
        };
        self.put("response_format", format);
    }

    fn tools(&mut self, request: &Request, breakpoints: &PartBreakpoints<'_>) {
        let mut tools = Vec::new();
        for (index, tool) in request.tools.iter().enumerate() {
            let mut written = match tool {
                Tool::Function { .. } => Some(write_tool(tool, self.variant)),
                Tool::Opaque { dialect, value } if dialect == NAME => Some(value.clone()),
                Tool::Opaque { .. } => None,
            };
            if written.is_none() {
                self.omitted(LossSubject::Tool, LossReason::ForeignDialect);
            }
            match (breakpoints.at(CachePlace::Tool { index }), &mut written) {
                (Some(time), Some(tool)) if self.variant.cache_breakpoints.tools => {
                    breakpoints.write(tool, time, &mut self.losses);
                }
                (Some(_), _) => self.omitted(LossSubject::CacheControl, LossReason::NoPlace),
                (None, _) => {}
            }
            tools.extend(written);
        }
        if tools.is_empty() {
            // Servers reject a choice without tools.
            if request.tool_choice.is_some() {
                self.omitted(LossSubject::ToolChoice, LossReason::NoTools);
            }
            if request.parallel_calls.is_some() {
                self.omitted(LossSubject::ParallelToolCalls, LossReason::NoTools);
            }
            return;
        }
        match &request.tool_choice {
            _ if self.variant.chooses_tools => {}
            // Without permission to call, no tools are sent.
            Some(ToolChoice::None) => {
                return self.adapted(LossSubject::ToolChoice, LossReason::NoToolsOffered);
            }
            Some(ToolChoice::Required | ToolChoice::Named { .. }) => {
                self.omitted(LossSubject::ToolChoice, LossReason::NoPlace);
            }
            None | Some(ToolChoice::Auto) => {}
        }
        self.put("tools", tools);
        self.put_some("parallel_tool_calls", request.parallel_calls);
        let choice = request.tool_choice.as_ref().map(|choice| match choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Named { name } => {
                json!({"type": "function", "function": {"name": name}})
            }
        });
        let choice = choice.filter(|_| self.variant.chooses_tools);
        self.put_some("tool_choice", choice);
    }

    /// Adds the unknown members of this dialect. They come last and override.
    fn extra(&mut self, request: &Request) {
        omit_foreign_members(request, NAME, &mut self.losses);
        for (name, value) in request.extra.get(NAME).into_iter().flatten() {
            match name.as_str() {
                "stream_options" => self.stream_options(value),
                "chat_template_kwargs" if self.body.contains_key(name) => {
                    if let (Some(Value::Object(ours)), Value::Object(theirs)) =
                        (self.body.get_mut(name), value)
                    {
                        for (name, value) in theirs {
                            ours.entry(name).or_insert_with(|| value.clone());
                        }
                    }
                }
                // A more exact form of the choice above.
                "tool_choice" if !self.body.contains_key("tools") => {}
                "tool_choice" if !self.variant.official => {
                    self.adapted(LossSubject::ToolChoice, LossReason::NoPlace);
                }
                _ if self.variant.takes(name) => {
                    self.body.insert(name.clone(), value.clone());
                }
                // The reader of the request has reported them.
                "logprobs" | "top_logprobs" => {}
                _ => {
                    let part = match variants::known_member(name) {
                        Some(name) => unknown_member(name, value),
                        None => Some(LossSubject::Member),
                    };
                    if let Some(part) = part {
                        self.omitted(part, LossReason::NoPlace);
                    }
                }
            }
        }
    }

    fn stream_options(&mut self, options: &Value) {
        // We always ask for usage; the client's options do not reach the provider.
        let (Some(Value::Object(ours)), Value::Object(theirs)) =
            (self.body.get_mut("stream_options"), options)
        else {
            return;
        };
        for (name, value) in theirs {
            ours.entry(name).or_insert_with(|| value.clone());
        }
    }

    fn thinking(&mut self, setting: &ThinkingSetting) {
        if let Some(amount) = setting.amount {
            self.amount(amount);
        }
        match (setting.show, self.variant.setting) {
            (None, _) => {}
            (Some(show), Setting::Format) => self.format(setting.amount, show),
            (Some(Show::Full | Show::Summary), Setting::Config) => {
                if setting.amount != Some(Amount::Off) {
                    self.show_thoughts();
                }
            }
            (Some(Show::Hidden), Setting::Config) => {}
            (Some(show), Setting::Object) => {
                let reasoning = self.body.entry("reasoning").or_insert_with(|| json!({}));
                match show {
                    Show::Hidden => reasoning["exclude"] = true.into(),
                    Show::Summary => reasoning["summary"] = "auto".into(),
                    Show::Full => {}
                }
            }
            // Other servers show all thinking. OpenAI shows none in this dialect.
            (Some(Show::Hidden), _) if self.variant.name == "openai" => {}
            (Some(Show::Full), _) if self.variant.name != "openai" => {}
            (Some(_), _) => self.adapted(LossSubject::ThinkingShow, LossReason::NoPlace),
        }
    }

    fn amount(&mut self, amount: Amount) {
        match (self.variant.setting, amount) {
            (
                Setting::Effort | Setting::Format | Setting::Config | Setting::Blocks,
                Amount::Off,
            ) => self.put("reasoning_effort", "none"),
            (Setting::Config, Amount::Budget { tokens }) => {
                self.thinking_config()["thinking_budget"] = tokens.into();
            }
            (Setting::Blocks, Amount::Budget { tokens }) => {
                self.put("thinking", json!({"type": "enabled", "budget_tokens": tokens}));
            }
            (Setting::Effort | Setting::Blocks, _) => {
                let effort = self.effort(amount).unwrap_or(self.variant.usual);
                self.put("reasoning_effort", effort.word());
            }
            (Setting::Format, _) => {
                let effort = self.effort(amount).map_or("default", Effort::word);
                self.put("reasoning_effort", effort);
            }
            (Setting::Config, _) => self.put_effort(amount),
            (Setting::Switch, _) => {
                let kind = if amount == Amount::Off { "disabled" } else { "enabled" };
                self.put("thinking", json!({"type": kind}));
                self.put_effort(amount);
            }
            (Setting::Enable, _) => {
                self.put("enable_thinking", amount != Amount::Off);
                match amount {
                    Amount::Budget { tokens } => self.put("thinking_budget", tokens),
                    Amount::Effort { .. } | Amount::Adaptive { effort: Some(_) } => {
                        self.adapted(LossSubject::Thinking, LossReason::OnOrOff);
                    }
                    _ => {}
                }
            }
            (Setting::Template, _) => {
                let on = amount != Amount::Off;
                self.put("chat_template_kwargs", json!({"enable_thinking": on}));
                match amount {
                    Amount::Budget { .. } => {
                        self.adapted(LossSubject::Thinking, LossReason::OnOrOff);
                    }
                    _ => self.put_effort(amount),
                }
            }
            (Setting::Object, _) => {
                let reasoning = match amount {
                    Amount::Off => json!({"effort": "none"}),
                    Amount::Budget { tokens } => json!({"max_tokens": tokens}),
                    _ => match self.effort(amount) {
                        Some(effort) => json!({"effort": effort.word()}),
                        None => json!({"enabled": true}),
                    },
                };
                self.put("reasoning", reasoning);
            }
            (Setting::Always, Amount::On | Amount::Adaptive { effort: None }) => {}
            (Setting::Always, _) => self.adapted(LossSubject::Thinking, LossReason::CannotBeSet),
        }
    }

    /// Writes the effort, if there is one.
    fn put_effort(&mut self, amount: Amount) {
        let effort = self.effort(amount);
        self.put_some("reasoning_effort", effort.map(Effort::word));
    }

    /// Writes the visibility of reasoning for models that think or not. Models with efforts always
    /// show it and have another setting to hide it.
    fn format(&mut self, amount: Option<Amount>, show: Show) {
        let graded =
            matches!(amount, Some(Amount::Effort { .. } | Amount::Adaptive { effort: Some(_) }));
        match show {
            _ if amount == Some(Amount::Off) => {}
            Show::Hidden if graded => self.put("include_reasoning", false),
            Show::Hidden => self.put("reasoning_format", "hidden"),
            Show::Full | Show::Summary if graded => {}
            Show::Full | Show::Summary => self.put("reasoning_format", "parsed"),
        }
    }

    /// Asks for visible thoughts. There an effort is a level of the thinking configuration.
    fn show_thoughts(&mut self) {
        let level = self.body.shift_remove("reasoning_effort");
        let config = self.thinking_config();
        config["include_thoughts"] = true.into();
        if let Some(level) = level {
            config["thinking_level"] = level;
        }
    }

    fn thinking_config(&mut self) -> &mut Value {
        let extra = self.body.entry("extra_body").or_insert_with(|| json!({}));
        if !extra.is_object() {
            *extra = json!({});
        }
        if !extra["google"].is_object() {
            extra["google"] = json!({});
        }
        let config = &mut extra["google"]["thinking_config"];
        if !config.is_object() {
            *config = json!({});
        }
        config
    }

    /// The effort to send; `None` if nothing is set.
    fn effort(&mut self, amount: Amount) -> Option<Effort> {
        let wanted = match amount {
            Amount::Effort { effort } => effort,
            Amount::Adaptive { effort } => effort?,
            Amount::Budget { tokens } => {
                self.adapted(LossSubject::Thinking, LossReason::BudgetAsEffort);
                return Effort::of_budget(tokens).nearest(self.variant.efforts);
            }
            Amount::Off | Amount::On => return None,
        };
        let given = wanted.nearest(self.variant.efforts)?;
        if given != wanted {
            self.adapted(LossSubject::Thinking, LossReason::Effort);
        }
        Some(given)
    }
}

fn write_tool(tool: &Tool, variant: &Variant) -> Value {
    let Tool::Function { name, description, parameters, strict } = tool else {
        return Value::Null;
    };
    let mut function = Map::new();
    function.insert("name".to_owned(), name.as_str().into());
    if let Some(description) = description {
        function.insert("description".to_owned(), description.as_str().into());
    }
    if !parameters.is_null() {
        function.insert("parameters".to_owned(), parameters.clone());
    } else if variant.needs_parameters {
        let nothing = json!({"type": "object", "properties": {}});
        function.insert("parameters".to_owned(), nothing);
    }
    if let Some(strict) = strict {
        function.insert("strict".to_owned(), (*strict).into());
    }
    json!({"type": "function", "function": function})
}
