//! The breakpoints for the provider's prompt cache. On the translate lane: those of the client, at the same
//! place, and those that the gateway sets for clients that set none. On the passthrough lane they pass
//! with the body, unless the configuration removes them.

use bytes::Bytes;
use throughline_canonical::{
    Block, CacheBreakpoints, CachePlace, CacheTime, Loss, LossReason, LossSubject, MediaKind,
    Message, Request, Role, Tool,
};
use throughline_codec::dialects::cache_breakpoints;
use throughline_codec::dialects::profile::BreakpointRules;

use crate::backend::{Backend, Cache};

/// The configuration removes the client's breakpoints.
pub(crate) const BREAKPOINTS_OFF: Loss =
    Loss::PartOmitted { part: LossSubject::CacheControl, reason: LossReason::Off };

/// A breakpoint of the client whose part was not sent.
const BREAKPOINT_LOST: Loss =
    Loss::PartOmitted { part: LossSubject::CacheControl, reason: LossReason::NoPlace };

/// The client set more breakpoints than the upstream takes.
const TOO_MANY_BREAKPOINTS: Loss =
    Loss::PartOmitted { part: LossSubject::CacheControl, reason: LossReason::TooMany };

/// A breakpoint for an hour after one for minutes, which providers refuse.
const HOUR_TOO_LATE: Loss =
    Loss::SettingAdapted { setting: LossSubject::CacheControl, reason: LossReason::Range };

/// Removes the breakpoints from a body that passes through, if the configuration wants it.
pub(crate) fn remove_in_place(backend: &Backend, body: &mut Bytes, losses: &mut Vec<Loss>) {
    if backend.cache == Cache::Off
        && let Some(without) = cache_breakpoints::remove(body)
    {
        *body = without.into();
        record(losses, BREAKPOINTS_OFF);
    }
}

/// The client's breakpoints, by the parts they follow. The history is joined, ordered and restored before it is
/// written, so that the index of a block changes.
#[derive(Debug, Default)]
pub(crate) struct KeptBreakpoints {
    parts: Vec<(PartBefore, CacheTime)>,
}

#[derive(Debug)]
enum PartBefore {
    /// A tool, a system text, or the end.
    Fixed(CachePlace),
    Block {
        block: Block,
        is_assistant: bool,
        /// How many equal blocks follow it.
        followers: usize,
    },
}

impl KeptBreakpoints {
    /// The breakpoints of a request.
    pub(crate) fn of(request: &Request) -> Self {
        let part = |position| match position {
            CachePlace::Block { message, block } => {
                let is_assistant = is_assistant(request.messages.get(message)?);
                let block = request.messages[message].content.get(block)?.clone();
                let followers = positions(&request.messages, is_assistant)
                    .filter(|(found, other)| *found > position && is_same(&block, other))
                    .count();
                Some(PartBefore::Block { block, is_assistant, followers })
            }
            position => Some(PartBefore::Fixed(position)),
        };
        let breakpoints = request.cache_breakpoints.iter();
        Self {
            parts: breakpoints
                .filter_map(|(position, time)| Some((part(position)?, time)))
                .collect(),
        }
    }

    /// Whether the client set none.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// As many breakpoints as the upstream takes, at the places where the parts are now. A part that is gone is a loss.
    pub(crate) fn find(
        &self,
        request: &Request,
        most: usize,
        losses: &mut Vec<Loss>,
    ) -> CacheBreakpoints {
        let mut found = CacheBreakpoints::default();
        for (part, time) in &self.parts {
            match part.position(request) {
                Some(position) => found.add(position, *time),
                None => record(losses, BREAKPOINT_LOST),
            }
        }
        if found.keep_last(most) {
            record(losses, TOO_MANY_BREAKPOINTS);
        }
        in_order(&found, losses)
    }
}

/// The breakpoints in the order that providers take: no hour after minutes.
fn in_order(breakpoints: &CacheBreakpoints, losses: &mut Vec<Loss>) -> CacheBreakpoints {
    let mut is_late = false;
    let in_order = breakpoints.iter().map(|(position, time)| {
        is_late |= time == CacheTime::Minutes;
        if is_late && time == CacheTime::Hour {
            record(losses, HOUR_TOO_LATE);
            return (position, CacheTime::Minutes);
        }
        (position, time)
    });
    in_order.collect()
}

/// Records a loss once.
fn record(losses: &mut Vec<Loss>, loss: Loss) {
    if !losses.contains(&loss) {
        losses.push(loss);
    }
}

impl PartBefore {
    fn position(&self, request: &Request) -> Option<CachePlace> {
        match self {
            Self::Fixed(CachePlace::End) => last_block(&request.messages),
            Self::Fixed(position @ CachePlace::Tool { index }) => {
                (*index < request.tools.len()).then_some(*position)
            }
            // System texts become the first message if there is no other.
            Self::Fixed(CachePlace::System { index }) if request.system.is_empty() => {
                let block = request.messages.first()?.content.get(*index)?;
                can_end_a_prefix(block).then_some(CachePlace::Block { message: 0, block: *index })
            }
            Self::Fixed(position) => Some(*position),
            Self::Block { block, is_assistant, followers } => {
                let equal: Vec<CachePlace> = positions(&request.messages, *is_assistant)
                    .filter_map(|(position, other)| is_same(block, other).then_some(position))
                    .collect();
                // Some clients repeat a result, and it is sent once.
                let from_end = (*followers).min(equal.len().checked_sub(1)?);
                equal.get(equal.len() - 1 - from_end).copied()
            }
        }
    }
}

/// The breakpoints for a client that set none: after the tools, after the system texts, and at the end of
/// the last two turns. The second to last turn ended the previous request, whose prefix is cached.
pub(crate) fn automatic(
    request: &Request,
    rules: &BreakpointRules,
    dialect: &str,
) -> CacheBreakpoints {
    let is_written = |tool: &Tool| match tool {
        Tool::Function { .. } => true,
        Tool::Opaque { dialect: of, .. } => of == dialect,
    };
    let tool = match rules.tools {
        true => request.tools.iter().rposition(is_written),
        false => None,
    };
    let system = request.system.iter().rposition(|text| !text.trim().is_empty());
    let tool = tool.map(|index| CachePlace::Tool { index });
    let system = system.map(|index| CachePlace::System { index });
    let ends = turn_ends(&request.messages).rev().take(2);
    let positions = tool.into_iter().chain(system).chain(ends);
    positions.map(|position| (position, CacheTime::Minutes)).collect()
}

/// The ends of the turns in which anyone but the model speaks.
fn turn_ends(messages: &[Message]) -> impl DoubleEndedIterator<Item = CachePlace> {
    let is_end = |at: &usize| {
        let next = messages.get(at + 1);
        !is_assistant(&messages[*at]) && next.is_none_or(is_assistant)
    };
    (0..messages.len()).filter(is_end).filter_map(|message| {
        let content = &messages[message].content;
        let is_other = |block: &Block| !matches!(block, Block::ToolResult { .. });
        // Results are written before texts.
        let block = content
            .iter()
            .rposition(|block| is_other(block) && can_end_a_prefix(block))
            .or_else(|| content.iter().rposition(can_end_a_prefix))?;
        Some(CachePlace::Block { message, block })
    })
}

/// The last block of the conversation that can have a breakpoint.
fn last_block(messages: &[Message]) -> Option<CachePlace> {
    let blocks = |at: usize| messages[at].content.iter().enumerate().rev();
    let mut all = (0..messages.len())
        .rev()
        .flat_map(|message| blocks(message).map(move |(block, value)| (message, block, value)));
    let (message, block, _) = all.find(|(_, _, block)| can_end_a_prefix(block))?;
    Some(CachePlace::Block { message, block })
}

/// Whether dialects with breakpoints write a block, and accept a breakpoint on it.
fn can_end_a_prefix(block: &Block) -> bool {
    match block {
        Block::Text { text, .. } | Block::Refusal { text } => !text.trim().is_empty(),
        Block::Media { kind, .. } => matches!(kind, MediaKind::Image | MediaKind::Document),
        Block::ToolCall { .. } | Block::ToolResult { .. } => true,
        Block::Thinking { .. } | Block::Redacted { .. } | Block::Opaque { .. } => false,
    }
}

/// Whether two blocks are the same part of a conversation. Signatures and restored parts may differ.
fn is_same(one: &Block, other: &Block) -> bool {
    match (one, other) {
        (Block::Text { text, .. }, Block::Text { text: other, .. }) => text == other,
        (Block::ToolCall { id, .. }, Block::ToolCall { id: other, .. })
        | (Block::ToolResult { id, .. }, Block::ToolResult { id: other, .. }) => id == other,
        _ => one == other,
    }
}

fn is_assistant(message: &Message) -> bool {
    message.role == Role::Assistant
}

/// All blocks of the model's messages, or of all others.
fn positions(messages: &[Message], by_model: bool) -> impl Iterator<Item = (CachePlace, &Block)> {
    let of =
        messages.iter().enumerate().filter(move |(_, message)| is_assistant(message) == by_model);
    of.flat_map(|(message, content)| {
        let blocks = content.content.iter().enumerate();
        blocks.map(move |(block, value)| (CachePlace::Block { message, block }, value))
    })
}

#[cfg(test)]
mod tests {
    use throughline_codec::dialects;

    use super::*;

    fn said(role: Role, texts: &[&str]) -> Message {
        Message::new(role, texts.iter().copied().map(Block::text).collect())
    }

    fn result(id: &str) -> Block {
        Block::ToolResult {
            id: id.to_owned(),
            name: None,
            content: vec![Block::text("found")],
            is_error: false,
        }
    }

    fn request(messages: Vec<Message>) -> Request {
        Request { messages, ..Request::default() }
    }

    /// The breakpoints as JSON, without their time.
    fn breakpoints(breakpoints: &CacheBreakpoints) -> String {
        let position = |position| match position {
            CachePlace::Tool { index } => format!("tool {index}"),
            CachePlace::System { index } => format!("system {index}"),
            CachePlace::Block { message, block } => format!("{message}.{block}"),
            CachePlace::End => "end".to_owned(),
        };
        breakpoints.iter().map(|(at, _)| position(at)).collect::<Vec<_>>().join(", ")
    }

    fn automatic_breakpoints(request: &Request) -> String {
        let profile = dialects::upstream("anthropic").unwrap().profile("");
        breakpoints(&automatic(request, &profile.cache_breakpoints, "anthropic"))
    }

    #[test]
    fn automatic_breakpoints_follow_tools_system_and_the_last_two_turns() {
        let mut request = request(vec![said(Role::User, &["a", "b"])]);
        assert_eq!(automatic_breakpoints(&request), "0.1");
        request.system = vec!["s".to_owned(), "t".to_owned(), " ".to_owned()];
        let tool = |name: &str| Tool::Function {
            name: name.to_owned(),
            description: None,
            parameters: serde_json::Value::Null,
            strict: None,
        };
        let foreign = Tool::Opaque { dialect: "other".to_owned(), value: serde_json::Value::Null };
        request.tools = vec![tool("x"), tool("y"), foreign];
        request.messages.push(said(Role::Assistant, &["c"]));
        request
            .messages
            .push(Message::new(Role::User, vec![Block::text("wait"), result("1"), result("2")]));
        request.messages.push(said(Role::Assistant, &["d"]));
        request.messages.push(Message::new(Role::User, vec![result("3"), result("4")]));
        assert_eq!(automatic_breakpoints(&request), "tool 1, system 1, 2.0, 4.1");
        request.messages.push(said(Role::System, &["note"]));
        assert_eq!(automatic_breakpoints(&request), "tool 1, system 1, 2.0, 5.0");
    }

    #[test]
    fn breakpoint_follows_its_block_through_changes_of_the_history() {
        let mut request = request(vec![
            said(Role::User, &["go on"]),
            said(Role::Assistant, &["well"]),
            said(Role::Assistant, &["then"]),
            Message::new(Role::User, vec![result("1"), result("2")]),
            said(Role::Assistant, &["yes"]),
            said(Role::User, &["go on"]),
            said(Role::Assistant, &["no"]),
            said(Role::User, &["go on", "more"]),
        ]);
        for (message, block) in [(3, 1), (5, 0), (7, 0)] {
            request.cache_breakpoints.add(CachePlace::Block { message, block }, CacheTime::Hour);
        }
        request.cache_breakpoints.add(CachePlace::End, CacheTime::Minutes);
        let parts = KeptBreakpoints::of(&request);
        // The two messages of one turn are joined, and thinking is restored.
        request.messages.remove(2);
        let thinking = Block::Thinking { text: "hm".to_owned(), signature: None };
        request.messages[1].content.insert(0, thinking);
        request.messages[2].content.remove(0);
        let mut losses = Vec::new();
        assert_eq!(breakpoints(&parts.find(&request, 4, &mut losses)), "2.0, 4.0, 6.0, 6.1");
        assert_eq!(losses, []);
        request.messages.remove(2);
        assert_eq!(breakpoints(&parts.find(&request, 4, &mut losses)), "3.0, 5.0, 5.1");
        assert_eq!(losses, [BREAKPOINT_LOST]);
    }

    #[test]
    fn breakpoints_are_limited_and_an_hour_does_not_follow_minutes() {
        let mut request = request(vec![said(Role::User, &["a", "b", "c", "d", "e"])]);
        for (block, time) in [
            (0, CacheTime::Minutes),
            (1, CacheTime::Hour),
            (2, CacheTime::Minutes),
            (3, CacheTime::Hour),
            (4, CacheTime::Minutes),
        ] {
            request.cache_breakpoints.add(CachePlace::Block { message: 0, block }, time);
        }
        // The end is the last block, which has a breakpoint already.
        request.cache_breakpoints.add(CachePlace::End, CacheTime::Minutes);
        let mut losses = Vec::new();
        let found = KeptBreakpoints::of(&request).find(&request, 4, &mut losses);
        let times: Vec<CacheTime> = found.iter().map(|(_, time)| time).collect();
        assert_eq!(breakpoints(&found), "0.1, 0.2, 0.3, 0.4");
        assert_eq!(times[0], CacheTime::Hour);
        assert!(times[1..].iter().all(|time| *time == CacheTime::Minutes), "{times:?}");
        assert_eq!(losses, [TOO_MANY_BREAKPOINTS, HOUR_TOO_LATE]);
    }
}
