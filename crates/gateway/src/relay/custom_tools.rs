//! Tools that take free text, over a provider that has none: they go as functions of one text, and their
//! calls come back as the client knows them.

use throughline_canonical::{
    Block, BlockStart, Delta, EndReason, Event, Loss, Message, Request, Tool, ToolChoice,
};
use throughline_codec::dialects::ClientDialect;
use throughline_codec::dialects::custom_tools::{CustomToolFormat, FreeCall, FreeTool};

/// The tools that went as functions.
#[derive(Debug, Default)]
pub(crate) struct CustomTools {
    dialect: &'static str,
    spelling: Option<&'static CustomToolFormat>,
    names: Vec<String>,
    /// Calls that have begun, with their arguments so far.
    open: Vec<(u32, FreeCall)>,
    /// Calls that have ended, but are no JSON: cut, if the reply ends so.
    doubtful: Vec<(u32, FreeCall)>,
}

impl CustomTools {
    /// Makes functions of them, and of what the conversation holds of them.
    pub(crate) fn carry(
        request: &mut Request,
        client: &dyn ClientDialect,
        upstream: &str,
        losses: &mut Vec<Loss>,
    ) -> Self {
        let mut tools = Self::default();
        let Some(spelling) = client.free_text().filter(|_| client.name() != upstream) else {
            return tools;
        };
        for tool in &mut request.tools {
            if let Tool::Opaque { value, .. } = tool
                && let Some(free) = (spelling.tool)(value)
            {
                *tool = Tool::Function {
                    name: free.name.clone(),
                    description: Some(free.told()).filter(|told| !told.is_empty()),
                    parameters: FreeTool::parameters(),
                    strict: None,
                };
                tools.names.push(free.name);
            }
        }
        let mut called = false;
        for message in &mut request.messages {
            called |= carry_calls(message, client.name(), spelling, losses);
        }
        if !tools.names.is_empty() || called {
            losses.push(Loss::SettingAdapted { setting: "tool", reason: "as_function" });
        }
        // One that must be called is named where only its dialect could say it.
        let members = request.extra.get(client.name());
        let choice = members.and_then(|members| members.get("tool_choice"));
        let named = choice.and_then(|choice| {
            let place = choice.get("custom").unwrap_or(choice);
            place.get("name")?.as_str().map(str::to_owned)
        });
        if let Some(name) = named.filter(|name| tools.names.contains(name)) {
            request.tool_choice = Some(ToolChoice::Named { name });
            if let Some(members) = request.extra.get_mut(client.name()) {
                members.shift_remove("tool_choice");
                if members.is_empty() {
                    request.extra.remove(client.name());
                }
            }
        }
        (tools.dialect, tools.spelling) = (client.name(), Some(spelling));
        tools
    }

    /// Whether no call can be one of them.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Hands an event on. A call of such a tool is told when it is complete.
    pub(crate) fn tell(&mut self, event: &Event<'_>, out: &mut dyn FnMut(&Event<'_>)) {
        if let Event::BlockStarted { .. } | Event::Ended { .. } = event {
            let cut = matches!(event, Event::Ended { reason } if reason_cuts(reason));
            for (index, call) in self.doubtful.drain(..).filter(|_| !cut) {
                write(self.dialect, self.spelling, index, &call, out);
            }
        }
        match event {
            Event::BlockStarted { index, block: BlockStart::ToolCall { id, name } }
                if self.names.iter().any(|known| known == name) =>
            {
                let call = FreeCall {
                    id: id.clone().into_owned(),
                    name: name.clone().into_owned(),
                    input: String::new(),
                };
                self.open.push((*index, call));
            }
            Event::BlockDelta { index, delta } => match (self.place(*index), delta) {
                (Some(place), Delta::ToolArguments(more)) => {
                    self.open[place].1.input.push_str(more);
                }
                // Who made it is known by its id.
                (Some(_), _) => {}
                (None, _) => out(event),
            },
            Event::BlockEnded { index } => match self.place(*index) {
                Some(place) => self.end(place, out),
                None => out(event),
            },
            // A call that was cut is nobody's to run.
            Event::Ended { .. } | Event::Fault(_) => {
                self.open.clear();
                self.doubtful.clear();
                out(event);
            }
            _ => out(event),
        }
    }

    fn place(&self, index: u32) -> Option<usize> {
        self.open.iter().position(|(open, _)| *open == index)
    }

    fn end(&mut self, place: usize, out: &mut dyn FnMut(&Event<'_>)) {
        let (index, mut call) = self.open.remove(place);
        match FreeCall::input_of(&call.input) {
            Some(input) => {
                call.input = input;
                write(self.dialect, self.spelling, index, &call, out);
            }
            // What comes next tells whether it is all there is.
            None => self.doubtful.push((index, call)),
        }
    }
}

fn reason_cuts(reason: &EndReason) -> bool {
    matches!(reason, EndReason::Length | EndReason::Cut | EndReason::Failed)
}

/// Tells a call as the client knows it.
fn write(
    dialect: &'static str,
    spelling: Option<&'static CustomToolFormat>,
    index: u32,
    call: &FreeCall,
    out: &mut dyn FnMut(&Event<'_>),
) {
    let Some(spelling) = spelling else {
        return;
    };
    let block = BlockStart::Opaque { dialect: dialect.into(), name: spelling.name.into() };
    let written = (spelling.write)(call).to_string();
    out(&Event::BlockStarted { index, block });
    out(&Event::BlockDelta { index, delta: Delta::Opaque(written.into()) });
    out(&Event::BlockEnded { index });
}

/// Makes calls and results of functions of those in a message. Answers whether there were any.
fn carry_calls(
    message: &mut Message,
    dialect: &str,
    spelling: &CustomToolFormat,
    losses: &mut Vec<Loss>,
) -> bool {
    let mut carried = false;
    for block in &mut message.content {
        let Block::Opaque { dialect: theirs, value } = block else {
            continue;
        };
        if theirs != dialect {
            continue;
        }
        if let Some(call) = (spelling.call)(value) {
            *block = Block::ToolCall {
                arguments: call.arguments(),
                id: call.id,
                name: call.name,
                signature: None,
            };
            carried = true;
        } else if let Some(result) = (spelling.result)(value) {
            *block = result.value;
            losses.extend(result.losses);
            carried = true;
        }
    }
    carried
}
