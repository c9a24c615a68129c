//! Chooses what of a branch goes into the next request, and in which form.
//!
//! Turns of the branch's own provider and model go back as their maker wrote them, with its
//! signatures. The latest answer by another provider or model is the *break*: it and everything
//! before it is sent as plain text. The gateway's history rules then decide about each block,
//! as they do for every client.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;
use throughline_canonical::{
    Block, BlockReport, Fate, Loss, LossReason, LossSubject, MadeTurn, Message, NativeTurn, Origin,
    Reason, Role, ThinkingKind,
};
use throughline_gateway::thinking::Envelopes;
use utoipa::ToSchema;

use super::budget::{Counted, Sizes, Window, message_tokens, text_block_tokens};
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
    /// Another member of the room said it.
    OtherMember,
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

/// A node for which there is no room, whatever it holds.
#[derive(Clone, Debug)]
pub struct EarlierNode {
    /// The id.
    pub id: String,
    /// The facts.
    pub facts: NodeFacts,
    /// Whether it has thinking.
    pub has_thinking: bool,
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
    /// The channel that answers, in a room.
    pub member: Option<&'a str>,
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

/// Assembles the history of a branch, oldest first. `earlier` are the nodes before `path`, which
/// [`fills_window`].
pub fn assemble(
    mut path: Vec<PastNode>,
    earlier: Vec<EarlierNode>,
    target: &Target<'_>,
    envelopes: &Envelopes,
) -> Context {
    let native_from = native_from(&path, target);
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
    let first = fit(&mut parts, &sizes, keep_from, target.window, !earlier.is_empty());
    let unread = earlier.iter().filter_map(|node| node.left_out(target));
    let left_out = unread.chain(parts.iter().flat_map(Part::left_out)).collect();
    let (read, messages): (Vec<NodeUse>, Vec<Vec<Message>>) =
        parts.into_iter().map(|part| (part.used, part.messages)).unzip();
    Context {
        messages: pair_calls(messages.into_iter().flatten().collect(), &assembly.calls),
        nodes: earlier.into_iter().map(EarlierNode::into_use).chain(read).collect(),
        left_out,
        losses: assembly.losses,
        tokens: sizes.fixed(target.fixed) + sizes.from(first),
        estimated: target.fixed + sizes.estimated_from(first),
    }
}

/// Whether nodes fill the window, whatever comes before them. Nothing that [`assemble`] does with them
/// then depends on it.
pub fn fills_window(path: &[PastNode], target: &Target<'_>) -> bool {
    let Some(window) = target.window else { return false };
    let Some(counted) = Counted::newest(path, target.provider, target.model) else { return false };
    if !path.iter().any(is_question) || !has_all_calls(path) {
        return false;
    }
    let native_from = native_from(path, target);
    let least =
        path.iter().enumerate().map(|(at, node)| least_tokens(node, at >= native_from, target));
    let sizes = Sizes::new(least.collect(), Some(counted));
    sizes.fixed(window.fixed) + sizes.from(0) > window.tokens
}

/// The index of the first node after the break.
fn native_from(path: &[PastNode], target: &Target<'_>) -> usize {
    path.iter().rposition(|node| is_break(&node.facts, target)).map_or(0, |at| at + 1)
}

/// Whether each result is after its call.
fn has_all_calls(path: &[PastNode]) -> bool {
    let mut called = HashSet::new();
    path.iter().flat_map(|node| &node.content.blocks).all(|block| match block {
        Block::ToolCall { id, .. } => {
            called.insert(id.as_str());
            true
        }
        Block::ToolResult { id, .. } => called.contains(id.as_str()),
        _ => true,
    })
}

/// What a node has at least: all of it as its maker wrote it, and its texts in any form.
fn least_tokens(node: &PastNode, is_native: bool, target: &Target<'_>) -> u64 {
    let (facts, blocks) = (&node.facts, &node.content.blocks);
    let is_whole = facts.status == NodeStatus::Complete && !is_of_other_member(facts, target);
    if is_native && is_whole {
        return message_tokens(blocks);
    }
    let is_text = |block: &&Block| match block {
        Block::Text { text, .. } | Block::Refusal { text } => !text.trim().is_empty(),
        _ => false,
    };
    blocks.iter().filter(is_text).map(text_block_tokens).sum()
}

/// Whether a node was made by another provider or model than the branch's.
fn is_break(facts: &NodeFacts, target: &Target<'_>) -> bool {
    facts.role == NodeRole::Assistant
        && !is_of_other_member(facts, target)
        && (facts.provider.as_deref(), facts.model.as_deref())
            != (Some(target.provider), Some(target.model))
}

/// Whether another member of the room said it. To the one that answers, it is a part of the
/// conversation like the words of a person.
fn is_of_other_member(facts: &NodeFacts, target: &Target<'_>) -> bool {
    match (target.member, facts.channel.as_deref()) {
        (Some(member), Some(channel)) => member != channel,
        _ => false,
    }
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
        let is_own = !is_break(&node.facts, self.target);
        let is_others = is_of_other_member(&node.facts, self.target);
        let PastNode { id, facts, mut content } = node;
        let speaker = match is_others {
            true => facts.channel.clone(),
            false => content.author.take().filter(|_| content.shows_author),
        };
        let is_complete = facts.status == NodeStatus::Complete;
        let (origin, native) = (content.origin.take(), content.native.take());
        let blocks = content.into_blocks();
        let mut thinking = thinking_of(&blocks);
        // Before its signatures are wrapped, which makes them longer.
        let raw_tokens = message_tokens(&blocks);
        let role = match facts.role {
            NodeRole::System => Role::System,
            NodeRole::Assistant if !is_others => Role::Assistant,
            NodeRole::User | NodeRole::Assistant => Role::User,
        };
        let (form, why, reason, mut messages) = match (is_native, is_complete) {
            _ if is_others => {
                let message = Message::new(role, self.plain(role, blocks));
                (Form::Text, Why::OtherMember, Some(Reason::Origin), vec![message])
            }
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
        if let (Some(speaker), Some(first)) = (speaker, messages.first_mut()) {
            name_speaker(&speaker, &mut first.content);
        }
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

/// Says who speaks, at the beginning of the first text.
fn name_speaker(name: &str, content: &mut Vec<Block>) {
    let first = content.iter_mut().find_map(|block| match block {
        Block::Text { text, .. } => Some(text),
        _ => None,
    });
    match first {
        Some(text) => text.insert_str(0, &format!("{name}: ")),
        None => content.insert(0, Block::text(format!("{name}:"))),
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

impl EarlierNode {
    /// Its thinking, as one block: the blocks are in its content.
    fn left_out(&self, target: &Target<'_>) -> Option<BlockReport> {
        let is_foreign = is_break(&self.facts, target);
        self.has_thinking.then(|| BlockReport {
            path: format!("nodes.{}.contentBlocks", self.id),
            kind: ThinkingKind::Thinking,
            fate: Fate::LeftOut,
            reason: Some(if is_foreign { Reason::Origin } else { Reason::Policy }),
            origin: None,
        })
    }

    fn into_use(self) -> NodeUse {
        NodeUse { node: self.id, form: Form::LeftOut, reason: Why::Budget }
    }
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
/// node that stays. If there are earlier nodes, the first turn here may have begun among them.
fn fit(
    parts: &mut [Part],
    sizes: &Sizes,
    keep_from: usize,
    window: Option<Window>,
    has_earlier: bool,
) -> usize {
    let Some(window) = window else { return 0 };
    let mut starts: Vec<usize> = (0..parts.len()).filter(|at| parts[*at].starts_turn).collect();
    if has_earlier && starts.first() != Some(&0) {
        starts.insert(0, 0);
    }
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
mod tests;
