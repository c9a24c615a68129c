//! Custom tools (tools that take free text) for providers that have none: they are sent as
//! functions with one string parameter, and their calls are translated back.

use throughline_canonical::{
    Block, BlockStart, Delta, EndReason, Event, Loss, LossReason, LossSubject, Message, Request,
    Tool, ToolChoice,
};
use throughline_codec::dialects::ClientDialect;
use throughline_codec::dialects::custom_tools::{
    CustomCall, CustomTool, CustomToolFormat, take_forced,
};

/// The custom tools that were sent as functions.
#[derive(Debug, Default)]
pub(crate) struct CustomTools {
    dialect: &'static str,
    format: Option<&'static CustomToolFormat>,
    names: Vec<String>,
    /// Open calls, with their arguments so far.
    open: Vec<(u32, CustomCall)>,
    /// Ended calls whose arguments are not valid JSON. They count as cut if the reply ends now.
    incomplete: Vec<(u32, CustomCall)>,
}

impl CustomTools {
    /// Turns custom tools, their calls and their results into functions.
    pub(crate) fn rewrite(
        request: &mut Request,
        client: &dyn ClientDialect,
        upstream: &str,
        losses: &mut Vec<Loss>,
    ) -> Self {
        let mut tools = Self::default();
        let Some(format) = client.defaults().custom_tools.filter(|_| client.name() != upstream)
        else {
            return tools;
        };
        for tool in &mut request.tools {
            if let Tool::Opaque { value, .. } = tool
                && let Some(custom) = (format.tool)(value)
            {
                *tool = Tool::Function {
                    name: custom.name.clone(),
                    description: Some(custom.function_description())
                        .filter(|text| !text.is_empty()),
                    parameters: CustomTool::parameters(),
                    strict: None,
                };
                tools.names.push(custom.name);
            }
        }
        let mut called = false;
        for message in &mut request.messages {
            called |= rewrite_calls(message, client.name(), format, losses);
        }
        if !tools.names.is_empty() || called {
            losses.push(Loss::SettingAdapted {
                setting: LossSubject::Tool,
                reason: LossReason::AsFunction,
            });
        }
        // A forced custom tool is named in a member that only its dialect has.
        if let Some(members) = request.extra.get_mut(client.name()) {
            let is_known = |name: &str| tools.names.iter().any(|known| known == name);
            if let Some(name) = take_forced(members, is_known) {
                if members.is_empty() {
                    request.extra.remove(client.name());
                }
                request.tool_choice = Some(ToolChoice::Named { name });
            }
        }
        (tools.dialect, tools.format) = (client.name(), Some(format));
        tools
    }

    /// Whether there is no custom tool.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Forwards an event. A call of a custom tool is emitted when it is complete.
    pub(crate) fn forward(&mut self, event: &Event<'_>, out: &mut dyn FnMut(&Event<'_>)) {
        if let Event::BlockStarted { .. } | Event::Ended { .. } = event {
            let cut = matches!(event, Event::Ended { reason } if reason_cuts(reason));
            for (index, call) in self.incomplete.drain(..).filter(|_| !cut) {
                write(self.dialect, self.format, index, &call, out);
            }
        }
        match event {
            Event::BlockStarted { index, block: BlockStart::ToolCall { id, name } }
                if self.names.iter().any(|known| known == name) =>
            {
                let call = CustomCall {
                    id: id.clone().into_owned(),
                    name: name.clone().into_owned(),
                    input: String::new(),
                };
                self.open.push((*index, call));
            }
            Event::BlockDelta { index, delta } => match (self.find(*index), delta) {
                (Some(position), Delta::ToolArguments(more)) => {
                    self.open[position].1.input.push_str(more);
                }
                // The vault finds the call's maker by its id.
                (Some(_), _) => {}
                (None, _) => out(event),
            },
            Event::BlockEnded { index } => match self.find(*index) {
                Some(position) => self.end(position, out),
                None => out(event),
            },
            // A cut call must not be run.
            Event::Ended { .. } | Event::Fault(_) => {
                self.open.clear();
                self.incomplete.clear();
                out(event);
            }
            _ => out(event),
        }
    }

    fn find(&self, index: u32) -> Option<usize> {
        self.open.iter().position(|(open, _)| *open == index)
    }

    fn end(&mut self, position: usize, out: &mut dyn FnMut(&Event<'_>)) {
        let (index, mut call) = self.open.remove(position);
        match CustomCall::input_of(&call.input) {
            Some(input) => {
                call.input = input;
                write(self.dialect, self.format, index, &call, out);
            }
            // The next event shows whether the call is complete.
            None => self.incomplete.push((index, call)),
        }
    }
}

fn reason_cuts(reason: &EndReason) -> bool {
    matches!(reason, EndReason::Length | EndReason::Cut | EndReason::Failed)
}

/// Emits a call in the client's format.
fn write(
    dialect: &'static str,
    format: Option<&'static CustomToolFormat>,
    index: u32,
    call: &CustomCall,
    out: &mut dyn FnMut(&Event<'_>),
) {
    let Some(format) = format else {
        return;
    };
    let block = BlockStart::Opaque { dialect: dialect.into(), name: format.name.into() };
    let written = (format.write)(call).to_string();
    out(&Event::BlockStarted { index, block });
    out(&Event::BlockDelta { index, delta: Delta::Opaque(written.into()) });
    out(&Event::BlockEnded { index });
}

/// Turns custom calls and results of a message into functions. Returns whether there were any.
fn rewrite_calls(
    message: &mut Message,
    dialect: &str,
    format: &CustomToolFormat,
    losses: &mut Vec<Loss>,
) -> bool {
    let mut rewritten = false;
    for block in &mut message.content {
        let Block::Opaque { dialect: theirs, value } = block else {
            continue;
        };
        if theirs != dialect {
            continue;
        }
        if let Some(call) = (format.call)(value) {
            *block = Block::ToolCall {
                arguments: call.arguments(),
                id: call.id,
                name: call.name,
                signature: None,
            };
            rewritten = true;
        } else if let Some(result) = (format.result)(value) {
            *block = result.value;
            losses.extend(result.losses);
            rewritten = true;
        }
    }
    rewritten
}
