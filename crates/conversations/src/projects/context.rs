//! Chooses what of a branch goes into the next request, and in which form.
//!
//! Turns of the branch's own provider and model go back as their maker wrote them, with its
//! signatures. The latest answer by another provider or model is the *break*: it and everything
//! before it is sent as plain text. The gateway's history rules then decide about each block,
//! as they do for every client.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use throughline_canonical::{
    Block, BlockReport, Fate, Loss, LossReason, LossSubject, MadeTurn, Message, NativeTurn, Origin,
    Reason, Role, ThinkingKind,
};
use throughline_gateway::thinking::Envelopes;
use utoipa::ToSchema;

use super::budget::{Counted, Sizes, Window, message_tokens};
use super::content::NodeContent;
use super::rounds::{finished_rounds, is_result, native_round};
use super::tool_text::{Calls, call_text, drop_repeated_results};
use crate::store::{NodeFacts, NodeRole, NodeStatus};

/// A node with its opened content.
#[derive(Clone, Debug)]
pub struct PastNode {
    /// The id.
    pub id: String,
    /// The facts.
    pub facts: NodeFacts,
    /// The content.
    pub content: NodeContent,
}

/// How a node goes into the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// As its maker wrote it.
    Raw,
    /// As plain text.
    Text,
    /// Not at all.
    LeftOut,
}

/// Why a node goes into the request in its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It is of the branch's own provider and model, or of a person.
    SameModel,
    /// It is before an answer of another provider or model, or is that answer.
    ModelBreak,
    /// Its reply was stopped or cut, so only its text is sent.
    Interrupted,
    /// Nothing of it can be sent.
    Empty,
    /// There was no room.
    Budget,
}

/// The fate of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct NodeUse {
    /// The node.
    pub node: String,
    /// The form.
    pub form: Form,
    /// The reason.
    pub reason: Why,
}

/// The history for a request.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// The fate of each node, oldest first.
    pub nodes: Vec<NodeUse>,
    /// The thinking of nodes that is not among the messages, and why.
    pub left_out: Vec<BlockReport>,
    /// What else is not among the messages.
    pub losses: Vec<Loss>,
    /// About how many tokens the request has, scaled to what the provider has counted before.
    pub tokens: u64,
    /// The same by our own estimate.
    pub estimated: u64,
}

/// What the history is for.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The branch's provider.
    pub provider: &'a str,
    /// The branch's model.
    pub model: &'a str,
    /// The room for the request. `None` if the model's limit is not known.
    pub window: Option<Window>,
    /// About how many tokens the system text and the tools have.
    pub fixed: u64,
}

/// One node, on its way into a request.
struct Part {
    used: NodeUse,
    /// An answer with a tool loop has several: each round, and the results of its calls.
    messages: Vec<Message>,
    /// Its thinking: the positions and kinds of the blocks.
    thinking: Vec<(usize, ThinkingKind)>,
    /// Why its thinking is not sent, if it is not.
    reason: Option<Reason>,
    origin: Option<Origin>,
    /// Whether a person begins a turn with it.
    starts_turn: bool,
    /// About how many tokens the message has.
    tokens: u64,
}

/// Assembles the history of a branch. `path` is oldest first.
pub fn assemble(mut path: Vec<PastNode>, target: &Target<'_>, envelopes: &Envelopes) -> Context {
    let native_from = path.iter().rposition(|node| is_break(node, target)).map_or(0, |at| at + 1);
    let keep_from = open_loop(&path);
    let counted = Counted::newest(&path, target.provider, target.model);
    let starts: Vec<bool> = path.iter().map(is_question).collect();
    drop_repeated_results(&mut path[..native_from]);
    let mut assembly = Assembly { target, envelopes, calls: Calls::default(), losses: Vec::new() };
    let mut parts: Vec<Part> = Vec::with_capacity(path.len());
    for ((at, node), starts_turn) in path.into_iter().enumerate().zip(starts) {
        assembly.calls.remember(&node.content.blocks);
        let mut part = assembly.part(node, at >= native_from);
        part.starts_turn = starts_turn && !part.messages.is_empty();
        parts.push(part);
    }
    let sizes = Sizes::new(parts.iter().map(|part| part.tokens).collect(), counted);
    let first = fit(&mut parts, &sizes, keep_from, target.window);
    let left_out = parts.iter().flat_map(Part::left_out).collect();
    let (nodes, messages): (Vec<NodeUse>, Vec<Vec<Message>>) =
        parts.into_iter().map(|part| (part.used, part.messages)).unzip();
    Context {
        messages: pair_calls(messages.into_iter().flatten().collect(), &assembly.calls),
        nodes,
        left_out,
        losses: assembly.losses,
        tokens: sizes.fixed(target.fixed) + sizes.from(first),
        estimated: target.fixed + sizes.estimated_from(first),
    }
}

/// Whether a node was made by another provider or model than the branch's.
fn is_break(node: &PastNode, target: &Target<'_>) -> bool {
    let facts = &node.facts;
    facts.role == NodeRole::Assistant
        && (facts.provider.as_deref(), facts.model.as_deref())
            != (Some(target.provider), Some(target.model))
}

/// The index of the first node that must stay: the model's present turn, with the message that it
/// answers.
fn open_loop(path: &[PastNode]) -> usize {
    path.iter().rposition(is_question).unwrap_or(0)
}

/// Whether a person begins a turn with a node.
fn is_question(node: &PastNode) -> bool {
    node.facts.role == NodeRole::User && !node.content.blocks.iter().any(is_result)
}

/// What is known while nodes become messages.
struct Assembly<'a> {
    target: &'a Target<'a>,
    envelopes: &'a Envelopes,
    calls: Calls,
    losses: Vec<Loss>,
}

impl Assembly<'_> {
    fn part(&mut self, node: PastNode, is_native: bool) -> Part {
        let is_own = !is_break(&node, self.target);
        let PastNode { id, facts, mut content } = node;
        let is_complete = facts.status == NodeStatus::Complete;
        let (origin, native) = (content.origin.take(), content.native.take());
        let blocks = content.into_blocks();
        let mut thinking = thinking_of(&blocks);
        // Before its signatures are wrapped, which makes them longer.
        let raw_tokens = message_tokens(&blocks);
        let role = match facts.role {
            NodeRole::System => Role::System,
            NodeRole::User => Role::User,
            NodeRole::Assistant => Role::Assistant,
        };
        let (form, why, reason, mut messages) = match (is_native, is_complete) {
            // Of its own blocks from before a break, the model could read each one.
            (false, _) => {
                let reason = if is_own { Reason::Policy } else { Reason::Origin };
                let message = Message::new(role, self.plain(role, blocks));
                (Form::Text, Why::ModelBreak, Some(reason), vec![message])
            }
            // A block that was cut is never sent to a provider, and a call that was cut has no
            // result. The rounds before are whole.
            (true, false) => {
                let mut blocks = blocks;
                let rest = blocks.split_off(finished_rounds(&blocks));
                thinking.retain(|(at, _)| *at >= blocks.len());
                let form = if blocks.is_empty() { Form::Text } else { Form::Raw };
                let mut messages = self.native(role, blocks, origin.as_ref(), native.as_ref());
                messages.push(Message::new(role, texts(rest)));
                (form, Why::Interrupted, Some(Reason::Cut), messages)
            }
            (true, true) => {
                let messages = self.native(role, blocks, origin.as_ref(), native.as_ref());
                (Form::Raw, Why::SameModel, None, messages)
            }
        };
        messages.retain(|message| !message.content.is_empty());
        let (form, why, tokens) = match form {
            _ if messages.is_empty() => (Form::LeftOut, Why::Empty, 0),
            Form::Raw => (form, why, raw_tokens),
            _ => (form, why, messages.iter().map(|one| message_tokens(&one.content)).sum()),
        };
        let used = NodeUse { node: id, form, reason: why };
        Part { used, messages, thinking, reason, origin, starts_turn: false, tokens }
    }

    /// The messages of a node for the maker of its blocks: each round of a tool loop as a message of its
    /// own, and the results of its calls after it.
    fn native(
        &self,
        role: Role,
        blocks: Vec<Block>,
        origin: Option<&Origin>,
        native: Option<&NativeTurn>,
    ) -> Vec<Message> {
        if role != Role::Assistant {
            return vec![Message::new(role, blocks)];
        }
        let mut messages = Vec::new();
        let mut start = 0;
        for round in blocks.chunk_by(|one, next| is_result(one) == is_result(next)) {
            let (first, end) = (start, start + round.len());
            start = end;
            if round.first().is_some_and(is_result) {
                messages.push(Message::new(Role::User, round.to_vec()));
                continue;
            }
            let native = native.map(|native| native_round(native, first, end));
            messages.push(self.native_message(round.to_vec(), origin, native));
        }
        messages
    }

    /// A message for the maker of its blocks.
    fn native_message(
        &self,
        blocks: Vec<Block>,
        origin: Option<&Origin>,
        native: Option<NativeTurn>,
    ) -> Message {
        let Some(origin) = origin else {
            return Message::new(Role::Assistant, blocks);
        };
        let made = native.map(|native| Arc::new(MadeTurn { native, blocks: blocks.clone() }));
        let wrapped = blocks.into_iter().map(|block| self.envelopes.wrap(block, origin));
        Message { made, ..Message::new(Role::Assistant, wrapped.collect()) }
    }

    /// Blocks as plain text. Thinking is left out; tool calls and their results become short texts, so
    /// that the next model knows what was found out. Media stay.
    fn plain(&mut self, role: Role, blocks: Vec<Block>) -> Vec<Block> {
        let mut plain = Vec::with_capacity(blocks.len());
        for block in blocks {
            match block {
                Block::Text { text, .. } | Block::Refusal { text } => {
                    if !text.trim().is_empty() {
                        plain.push(Block::text(text));
                    }
                }
                Block::ToolCall { name, arguments, .. } => {
                    plain.push(call_text(&name, &arguments));
                }
                Block::ToolResult { .. } => {
                    let results = self.calls.result_texts(&block).into_iter();
                    // What tools of the server gave is in the model's own turn, which takes no media.
                    let is_taken = |block: &Block| {
                        role != Role::Assistant || !matches!(block, Block::Media { .. })
                    };
                    plain.extend(results.filter(is_taken));
                }
                Block::Media { .. } => plain.push(block),
                Block::Thinking { .. } | Block::Redacted { .. } => {}
                Block::Opaque { .. } => Loss::add(&mut self.losses, BLOCK_OMITTED),
            }
        }
        plain
    }
}

/// A block without a canonical form is not sent to another model.
const BLOCK_OMITTED: Loss =
    Loss::PartOmitted { part: LossSubject::Block, reason: LossReason::ForeignDialect };

/// The positions and kinds of thinking.
fn thinking_of(blocks: &[Block]) -> Vec<(usize, ThinkingKind)> {
    let kind = |(at, block): (usize, &Block)| match block {
        Block::Thinking { .. } => Some((at, ThinkingKind::Thinking)),
        Block::Redacted { .. } => Some((at, ThinkingKind::Redacted)),
        _ => None,
    };
    blocks.iter().enumerate().filter_map(kind).collect()
}

impl Part {
    /// The thinking that is not sent, and why.
    fn left_out(&self) -> impl Iterator<Item = BlockReport> {
        self.reason.into_iter().flat_map(move |reason| {
            self.thinking.iter().map(move |(at, kind)| BlockReport {
                path: format!("nodes.{}.contentBlocks.{at}", self.used.node),
                kind: *kind,
                fate: Fate::LeftOut,
                reason: Some(reason),
                origin: self.origin.clone(),
            })
        })
    }
}

/// The texts of a reply that was cut.
fn texts(blocks: Vec<Block>) -> Vec<Block> {
    let has_text = |block: &Block| match block {
        Block::Text { text, .. } | Block::Refusal { text } => !text.trim().is_empty(),
        _ => false,
    };
    let plain = |block| match block {
        Block::Text { text, .. } | Block::Refusal { text } => Block::text(text),
        other => other,
    };
    blocks.into_iter().filter(has_text).map(plain).collect()
}

/// Gives every call one result, right after it, and turns a result without its call into text.
/// Providers refuse any other history. A person may go on without a result, send one again, or merge
/// into an open loop, and a cut reply has lost its calls.
fn pair_calls(messages: Vec<Message>, known: &Calls) -> Vec<Message> {
    let mut paired: Vec<Message> = Vec::with_capacity(messages.len());
    let mut messages = messages.into_iter().peekable();
    while let Some(message) = messages.next() {
        let calls: Vec<String> = match message.role {
            Role::Assistant => message.content.iter().filter_map(call_id).collect(),
            Role::System | Role::User => Vec::new(),
        };
        paired.push(message);
        let mut results = HashMap::new();
        let mut rest = Vec::new();
        while let Some(next) = messages.next_if(|next| next.role != Role::Assistant) {
            rest.push(take_results(next, &calls, &mut results, known));
        }
        if !calls.is_empty() {
            let answers = calls.into_iter().map(|id| {
                let missing = || missing_result(&id, known);
                results.remove(&id).unwrap_or_else(missing)
            });
            paired.push(Message::new(Role::User, answers.collect()));
        }
        for message in rest.into_iter().filter(|message| !message.content.is_empty()) {
            match paired.last_mut() {
                // Results and what a person says after them are one message.
                Some(last) if last.role == Role::User && message.role == Role::User => {
                    last.content.extend(message.content);
                }
                _ => paired.push(message),
            }
        }
    }
    paired
}

fn call_id(block: &Block) -> Option<String> {
    match block {
        Block::ToolCall { id, .. } => Some(id.clone()),
        _ => None,
    }
}

/// Moves the results of these calls out of a message. The newest result of a call counts.
fn take_results(
    message: Message,
    calls: &[String],
    results: &mut HashMap<String, Block>,
    known: &Calls,
) -> Message {
    let mut content = Vec::with_capacity(message.content.len());
    for block in message.content {
        match &block {
            Block::ToolResult { id, .. } if calls.contains(id) => {
                results.insert(id.clone(), block);
            }
            Block::ToolResult { .. } => content.extend(known.result_texts(&block)),
            _ => content.push(block),
        }
    }
    Message::new(message.role, content)
}

/// The result of a call that has none.
fn missing_result(id: &str, calls: &Calls) -> Block {
    Block::ToolResult {
        id: id.to_owned(),
        name: calls.name(id).map(str::to_owned),
        content: vec![Block::text("no result was given")],
        is_error: true,
    }
}

/// Fills the window with the newest nodes. The present turn always stays. An earlier turn is kept
/// whole or not at all, because a history begins with a user message. Returns the index of the first
/// node that stays.
fn fit(parts: &mut [Part], sizes: &Sizes, keep_from: usize, window: Option<Window>) -> usize {
    let Some(window) = window else { return 0 };
    let starts: Vec<usize> = (0..parts.len()).filter(|at| parts[*at].starts_turn).collect();
    let first = sizes.first_that_fits(window, keep_from, &starts);
    for part in &mut parts[..first] {
        if !std::mem::take(&mut part.messages).is_empty() {
            (part.used.form, part.used.reason) = (Form::LeftOut, Why::Budget);
            part.reason.get_or_insert(Reason::Policy);
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use throughline_canonical::Usage;
    use throughline_sealing::Keyring;

    use super::super::tool_text::MAX_TOOL_TEXT;
    use super::*;

    const TARGET: Target<'_> = Target { provider: "a", model: "m", window: None, fixed: 0 };

    fn envelopes() -> Envelopes {
        Envelopes::new(Arc::new(Keyring::new([1; 32])))
    }

    fn node(
        id: &str,
        role: NodeRole,
        made_by: Option<(&str, &str)>,
        blocks: Vec<Block>,
    ) -> PastNode {
        let origin = made_by.map(|(backend, model)| Origin {
            domain: backend.to_owned(),
            backend: backend.to_owned(),
            model: model.to_owned(),
            credential: String::new(),
        });
        PastNode {
            id: id.to_owned(),
            facts: NodeFacts {
                role,
                provider: made_by.map(|(provider, _)| provider.to_owned()),
                model: made_by.map(|(_, model)| model.to_owned()),
                ..NodeFacts::default()
            },
            content: NodeContent { blocks, origin, ..NodeContent::default() },
        }
    }

    fn user(id: &str, text: &str) -> PastNode {
        node(id, NodeRole::User, None, vec![Block::text(text)])
    }

    fn answer(id: &str, made_by: (&str, &str), text: &str) -> PastNode {
        let thinking = Block::Thinking { text: "hm".to_owned(), signature: Some("s".to_owned()) };
        node(id, NodeRole::Assistant, Some(made_by), vec![thinking, Block::text(text)])
    }

    fn forms(context: &Context) -> Vec<(&str, Form, Why)> {
        context.nodes.iter().map(|used| (used.node.as_str(), used.form, used.reason)).collect()
    }

    /// Covers: S4-24, S4-25, S4-26, C-28, case 41
    #[test]
    fn everything_up_to_the_newest_break_is_plain_text() {
        let path = vec![
            user("1", "one"),
            answer("2", ("a", "m"), "first"),
            user("3", "two"),
            answer("4", ("b", "m"), "second"),
            user("5", "three"),
            answer("6", ("a", "m"), "third"),
            user("7", "four"),
        ];
        let context = assemble(path, &TARGET, &envelopes());
        let text = |id| (id, Form::Text, Why::ModelBreak);
        let raw = |id| (id, Form::Raw, Why::SameModel);
        assert_eq!(
            forms(&context),
            [text("1"), text("2"), text("3"), text("4"), raw("5"), raw("6"), raw("7")]
        );
        assert_eq!(context.messages[1].content, [Block::text("first")]);
        let Block::Thinking { text, signature } = &context.messages[5].content[0] else {
            panic!("{:?}", context.messages[5]);
        };
        // The signature travels with its maker.
        assert_eq!((text.as_str(), signature.as_deref() == Some("s")), ("hm", false));
    }

    /// Covers: C-37
    #[test]
    fn calls_and_results_before_a_break_become_short_texts() {
        let call = Block::ToolCall {
            id: "c1".to_owned(),
            name: "read".to_owned(),
            arguments: r#"{"path":"x"}"#.to_owned(),
            signature: None,
        };
        let result = |text: &str| Block::ToolResult {
            id: "c1".to_owned(),
            name: None,
            content: vec![Block::text(text)],
            is_error: false,
        };
        let long = "y".repeat(2 * MAX_TOOL_TEXT);
        let path = vec![
            user("1", "read it"),
            node("2", NodeRole::Assistant, Some(("b", "m")), vec![call.clone()]),
            node("3", NodeRole::User, None, vec![result("same")]),
            node("4", NodeRole::Assistant, Some(("b", "m")), vec![call]),
            node("5", NodeRole::User, None, vec![result("same"), result(&long)]),
            answer("6", ("b", "m"), "done"),
            user("7", "now you"),
        ];
        let context = assemble(path, &TARGET, &envelopes());
        let texts: Vec<String> = context
            .messages
            .iter()
            .map(|message| crate::projects::content::text_of(&message.content))
            .collect();
        assert_eq!(texts[1], r#"[called tool read with {"path":"x"}]"#);
        assert_eq!(forms(&context)[2], ("3", Form::LeftOut, Why::Empty), "repeated later");
        assert!(texts[3].starts_with("[tool read returned: same][tool read returned: yyy"));
        assert!(texts[3].chars().count() < MAX_TOOL_TEXT + 100);
    }

    /// Covers: case 10
    #[test]
    fn thinking_of_a_cut_reply_is_not_sent() {
        let mut cut = answer("2", ("a", "m"), "half");
        cut.facts.status = NodeStatus::Interrupted;
        let mut empty = answer("4", ("a", "m"), "");
        empty.facts.status = NodeStatus::Error;
        let path = vec![user("1", "one"), cut, user("3", "two"), empty, user("5", "three")];
        let context = assemble(path, &TARGET, &envelopes());
        assert_eq!(forms(&context)[1], ("2", Form::Text, Why::Interrupted));
        assert_eq!(context.messages[1].content, [Block::text("half")]);
        assert_eq!(forms(&context)[3], ("4", Form::LeftOut, Why::Empty));
    }

    #[test]
    fn budget_keeps_whole_turns_and_the_open_tool_loop() {
        let call = Block::ToolCall {
            id: "c1".to_owned(),
            name: "read".to_owned(),
            arguments: "{}".to_owned(),
            signature: None,
        };
        let result = Block::ToolResult {
            id: "c1".to_owned(),
            name: None,
            content: vec![Block::text("z".repeat(4000))],
            is_error: false,
        };
        let path = vec![
            user("1", &"a".repeat(400)),
            answer("2", ("a", "m"), &"b".repeat(400)),
            user("3", &"c".repeat(400)),
            answer("4", ("a", "m"), &"d".repeat(400)),
            user("5", "go"),
            node("6", NodeRole::Assistant, Some(("a", "m")), vec![call]),
            node("7", NodeRole::User, None, vec![result]),
        ];
        for (tokens, kept) in [(10_000, 7), (1_800, 5), (1_500, 3), (0, 3)] {
            let target = Target { window: Some(Window { tokens, fixed: 0 }), ..TARGET };
            let context = assemble(path.clone(), &target, &envelopes());
            assert_eq!(context.messages.len(), kept, "{tokens}");
            let left_out = forms(&context).iter().filter(|used| used.2 == Why::Budget).count();
            assert_eq!(left_out, 7 - kept, "{tokens}");
            // Each answer that has no room takes its thinking with it.
            let policy = Some(Reason::Policy);
            let reported = context.left_out.iter().filter(|block| block.reason == policy).count();
            assert_eq!(reported, (7 - kept) / 2, "{tokens}");
        }
        // System text and tools need room too.
        let window = Some(Window { tokens: 1_800, fixed: 400 });
        let context =
            assemble(path.clone(), &Target { window, fixed: 400, ..TARGET }, &envelopes());
        assert_eq!(context.messages.len(), 3);
        assert!(context.tokens > 400 + 1_333);
    }

    #[test]
    fn count_of_the_provider_replaces_the_estimate() {
        let mut counted = answer("2", ("a", "m"), "short");
        counted.content.estimated_input = Some(1_000);
        counted.facts.usage =
            Some(Usage { input: Some(100), cache_read: Some(150), ..Usage::default() });
        let path = vec![user("1", &"a".repeat(3_000)), counted, user("3", "more")];
        let estimated = assemble(vec![path[0].clone()], &TARGET, &envelopes());
        assert_eq!((estimated.tokens, estimated.estimated), (1_012, 1_012));
        let context = assemble(path.clone(), &TARGET, &envelopes());
        assert_eq!((context.tokens, context.estimated), (253 + 20 + 14, 1_012 + 20 + 14));
        // A window that the estimate alone would exceed.
        let window = Some(Window { tokens: 300, fixed: 0 });
        let context = assemble(path.clone(), &Target { window, ..TARGET }, &envelopes());
        assert_eq!(context.messages.len(), 3);
        // Another model counts differently.
        let other = Target { window, model: "n", ..TARGET };
        assert_eq!(assemble(path, &other, &envelopes()).messages.len(), 1);
    }

    #[test]
    fn equal_results_of_different_calls_both_stay() {
        let call = |id: &str, path: &str| Block::ToolCall {
            id: id.to_owned(),
            name: "read".to_owned(),
            arguments: format!("{{\"path\":\"{path}\"}}"),
            signature: None,
        };
        let other = Some(("b", "m"));
        let image = Block::Media {
            kind: throughline_canonical::MediaKind::Image,
            source: throughline_canonical::Source::Url {
                url: "http://x/i".to_owned(),
                media_type: None,
            },
            name: None,
            detail: None,
        };
        let mut seen = result("c4", "");
        if let Block::ToolResult { content, .. } = &mut seen {
            content.push(image.clone());
        }
        let path = vec![
            user("1", "read"),
            node("2", NodeRole::Assistant, other, vec![call("c1", "x"), call("c2", "y")]),
            node("3", NodeRole::User, None, vec![result("c2", "empty"), result("c1", "empty")]),
            node("4", NodeRole::Assistant, other, vec![call("c3", "x")]),
            node("5", NodeRole::User, None, vec![result("c3", "empty")]),
            node("6", NodeRole::Assistant, other, vec![call("c4", "z")]),
            node("7", NodeRole::User, None, vec![seen]),
            answer("8", ("b", "m"), "done"),
            user("9", "now you"),
        ];
        let context = assemble(path, &TARGET, &envelopes());
        let texts = |at: usize| crate::projects::content::text_of(&context.messages[at].content);
        // The later call of `x` has the result of the earlier one.
        assert_eq!(texts(2), r#"[tool read with {"path":"y"} returned: empty]"#);
        assert_eq!(texts(4), "[tool read returned: empty]");
        assert_eq!(context.messages[6].content[1], image);
    }

    #[test]
    fn thinking_that_is_not_sent_is_reported() {
        let mut cut = answer("6", ("a", "m"), "half");
        cut.facts.status = NodeStatus::Interrupted;
        let search =
            Block::Opaque { dialect: "b".to_owned(), value: serde_json::json!({"type": "search"}) };
        let mut foreign = answer("4", ("b", "m"), "second");
        foreign.content.blocks.push(Block::Redacted { data: "r".to_owned() });
        foreign.content.blocks.push(search);
        let path = vec![
            user("1", "one"),
            answer("2", ("a", "m"), "first"),
            user("3", "two"),
            foreign,
            user("5", "three"),
            cut,
            user("7", "four"),
            answer("8", ("a", "m"), "third"),
            user("9", "five"),
        ];
        let context = assemble(path, &TARGET, &envelopes());
        let line = |block: &BlockReport| {
            let backend = block.origin.as_ref().map(|origin| origin.backend.clone());
            (block.path.clone(), block.kind, block.reason, backend.unwrap_or_default())
        };
        let expected = |path: &str, kind, reason, backend: &str| {
            (path.to_owned(), kind, Some(reason), backend.to_owned())
        };
        let (thinking, redacted) = (ThinkingKind::Thinking, ThinkingKind::Redacted);
        assert_eq!(
            context.left_out.iter().map(line).collect::<Vec<_>>(),
            [
                expected("nodes.2.contentBlocks.0", thinking, Reason::Policy, "a"),
                expected("nodes.4.contentBlocks.0", thinking, Reason::Origin, "b"),
                expected("nodes.4.contentBlocks.2", redacted, Reason::Origin, "b"),
                expected("nodes.6.contentBlocks.0", thinking, Reason::Cut, "a"),
            ]
        );
        assert_eq!(context.losses, [BLOCK_OMITTED]);
    }

    #[test]
    fn native_form_goes_with_the_blocks_of_its_own_model() {
        let native = NativeTurn { dialect: "d".to_owned(), parts: Vec::new() };
        let mut own = answer("4", ("a", "m"), "second");
        own.content.native = Some(native.clone());
        let mut foreign = answer("2", ("b", "m"), "first");
        foreign.content.native = Some(native);
        let path = vec![user("1", "x"), foreign, user("3", "y"), own.clone(), user("5", "z")];
        let context = assemble(path, &TARGET, &envelopes());
        assert_eq!(context.messages[1].made, None);
        let made = context.messages[3].made.as_deref().expect("a native form");
        assert_eq!(made.blocks, own.content.blocks);
    }

    /// Covers: S4-12
    #[test]
    fn node_in_the_old_text_format_is_readable() {
        let mut old = node("2", NodeRole::Assistant, Some(("a", "m")), Vec::new());
        old.content.content = Some("old answer".to_owned());
        old.content.thinking = Some("old thought".to_owned());
        let context = assemble(vec![user("1", "x"), old, user("3", "y")], &TARGET, &envelopes());
        assert_eq!(crate::projects::content::text_of(&context.messages[1].content), "old answer");
    }

    fn call(id: &str) -> Block {
        Block::ToolCall {
            id: id.to_owned(),
            name: "read".to_owned(),
            arguments: "{}".to_owned(),
            signature: None,
        }
    }

    fn result(id: &str, text: &str) -> Block {
        Block::ToolResult {
            id: id.to_owned(),
            name: None,
            content: vec![Block::text(text)],
            is_error: false,
        }
    }

    fn results_of(message: &Message) -> Vec<(String, String, bool)> {
        let read = |block: &Block| match block {
            Block::ToolResult { id, content, is_error, .. } => {
                let text = crate::projects::content::text_of(content);
                Some((id.clone(), text, *is_error))
            }
            _ => None,
        };
        message.content.iter().filter_map(read).collect()
    }

    #[test]
    fn call_without_a_result_gets_an_error_result() {
        let own = Some(("a", "m"));
        let path = vec![
            user("1", "read both"),
            node("2", NodeRole::Assistant, own, vec![call("c1"), call("c2")]),
            node("3", NodeRole::User, None, vec![result("c2", "two"), Block::text("go on")]),
            node("4", NodeRole::Assistant, own, vec![call("c3")]),
            user("5", "never mind"),
        ];
        let context = assemble(path, &TARGET, &envelopes());
        let missing = |id: &str| (id.to_owned(), "no result was given".to_owned(), true);
        let given = ("c2".to_owned(), "two".to_owned(), false);
        assert_eq!(context.messages.len(), 5);
        assert_eq!(results_of(&context.messages[2]), [missing("c1"), given]);
        assert_eq!(context.messages[2].content[2], Block::text("go on"));
        assert_eq!(results_of(&context.messages[4]), [missing("c3")]);
        assert_eq!(context.messages[4].content[1], Block::text("never mind"));
    }

    #[test]
    fn result_without_its_call_becomes_text_and_the_newest_result_counts() {
        let own = Some(("a", "m"));
        let mut cut = node("2", NodeRole::Assistant, own, vec![Block::text("Hm"), call("c1")]);
        cut.facts.status = NodeStatus::Interrupted;
        let path = vec![
            user("1", "read"),
            cut,
            node("3", NodeRole::User, None, vec![result("c1", "one")]),
            node("4", NodeRole::Assistant, own, vec![call("c2")]),
            node("5", NodeRole::User, None, vec![result("c2", "failed turn")]),
            node("6", NodeRole::User, None, vec![result("c2", "sent again")]),
        ];
        let context = assemble(path, &TARGET, &envelopes());
        assert_eq!(context.messages[2].content, [Block::text("[tool read returned: one]")]);
        let newest = ("c2".to_owned(), "sent again".to_owned(), false);
        assert_eq!(results_of(&context.messages[4]), [newest]);
        assert_eq!(context.messages.len(), 5);
    }
}
