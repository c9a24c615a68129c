//! Chooses what of a branch goes into the next request, and in which form.
//!
//! Turns of the branch's own provider and model go back as their maker wrote them, with its
//! signatures. The latest answer by another provider or model is the *break*: it and everything
//! before it is sent as plain text. The gateway's history rules then decide about each block,
//! as they do for every client.

use std::collections::HashMap;

use serde::Serialize;
use throughline_canonical::{Block, Message, Role};
use throughline_gateway::thinking::Envelopes;
use utoipa::ToSchema;

use super::content::NodeContent;
use crate::store::{NodeFacts, NodeRole, NodeStatus};

/// The longest text that a tool call or a tool result becomes after a break, in characters.
const MAX_TOOL_TEXT: usize = 600;
/// Bytes of text per token, roughly, in any language.
const BYTES_PER_TOKEN: u64 = 4;
/// What an image or a document counts, in tokens.
const MEDIA_TOKENS: u64 = 1_500;

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
    /// About how many tokens the messages have.
    pub tokens: u64,
}

/// What the history is for.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The branch's provider.
    pub provider: &'a str,
    /// The branch's model.
    pub model: &'a str,
    /// How many tokens the history may have. `None` if the model's limit is not known.
    pub budget: Option<u64>,
}

/// Assembles the history of a branch. `path` is oldest first.
pub fn assemble(path: Vec<PastNode>, target: &Target<'_>, envelopes: &Envelopes) -> Context {
    let native_from = path.iter().rposition(|node| is_break(node, target)).map_or(0, |at| at + 1);
    let keep_from = open_loop(&path);
    let mut names = HashMap::new();
    let mut parts: Vec<(NodeUse, Option<Message>)> = Vec::with_capacity(path.len());
    for (at, node) in path.into_iter().enumerate() {
        remember_names(&node.content.blocks, &mut names);
        parts.push(part(node, at >= native_from, envelopes, &names));
    }
    drop_repeated_results(&mut parts[..native_from]);
    fit(&mut parts, keep_from, target.budget);
    let (nodes, messages): (Vec<NodeUse>, Vec<Option<Message>>) = parts.into_iter().unzip();
    let messages = pair_calls(messages.into_iter().flatten().collect(), &names);
    let tokens = messages.iter().map(tokens).sum();
    Context { messages, nodes, tokens }
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
    let is_question = |node: &PastNode| {
        let is_result = |block: &Block| matches!(block, Block::ToolResult { .. });
        node.facts.role == NodeRole::User && !node.content.blocks.iter().any(is_result)
    };
    path.iter().rposition(is_question).unwrap_or(0)
}

fn part(
    node: PastNode,
    is_native: bool,
    envelopes: &Envelopes,
    names: &HashMap<String, String>,
) -> (NodeUse, Option<Message>) {
    let PastNode { id, facts, content } = node;
    let is_complete = facts.status == NodeStatus::Complete;
    let origin = content.origin.clone();
    let blocks = content.into_blocks();
    let role = match facts.role {
        NodeRole::System => Role::System,
        NodeRole::User => Role::User,
        NodeRole::Assistant => Role::Assistant,
    };
    let (form, reason, blocks) = match (is_native, is_complete) {
        (false, _) => (Form::Text, Why::ModelBreak, plain(blocks, names)),
        // A block that was cut is never sent to a provider, and a call that was cut has no result.
        (true, false) => (Form::Text, Why::Interrupted, texts(blocks)),
        (true, true) => {
            let wrapped = match origin.filter(|_| role == Role::Assistant) {
                Some(origin) => {
                    blocks.into_iter().map(|block| envelopes.wrap(block, &origin)).collect()
                }
                None => blocks,
            };
            (Form::Raw, Why::SameModel, wrapped)
        }
    };
    if blocks.is_empty() {
        return (NodeUse { node: id, form: Form::LeftOut, reason: Why::Empty }, None);
    }
    (NodeUse { node: id, form, reason }, Some(Message { role, content: blocks }))
}

/// The names of called tools, by the id of the call.
fn remember_names(blocks: &[Block], names: &mut HashMap<String, String>) {
    for block in blocks {
        if let Block::ToolCall { id, name, .. } = block {
            names.insert(id.clone(), name.clone());
        }
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

/// Blocks as plain text. Thinking is left out; tool calls and their results become short texts, so
/// that the next model knows what was found out. Media of a person stay.
fn plain(blocks: Vec<Block>, names: &HashMap<String, String>) -> Vec<Block> {
    blocks
        .into_iter()
        .filter_map(|block| match block {
            Block::Text { text, .. } | Block::Refusal { text } if !text.trim().is_empty() => {
                Some(Block::text(text))
            }
            Block::ToolCall { name, arguments, .. } => {
                let arguments = shortened(arguments.trim());
                Some(Block::text(format!("[called tool {name} with {arguments}]")))
            }
            Block::ToolResult { .. } => result_text(&block, names),
            Block::Media { .. } => Some(block),
            _ => None,
        })
        .collect()
}

/// The result of a tool, as a short text.
fn result_text(result: &Block, names: &HashMap<String, String>) -> Option<Block> {
    let Block::ToolResult { id, name, content, is_error } = result else {
        return None;
    };
    let name = name.as_ref().or_else(|| names.get(id)).unwrap_or(id);
    let verb = if *is_error { "failed" } else { "returned" };
    let text = super::content::text_of(content);
    Some(Block::text(format!("[tool {name} {verb}: {}]", shortened(text.trim()))))
}

/// Gives every call one result, right after it, and turns a result without its call into text.
/// Providers refuse any other history. A person may go on without a result, send one again, or merge
/// into an open loop, and a cut reply has lost its calls.
fn pair_calls(messages: Vec<Message>, names: &HashMap<String, String>) -> Vec<Message> {
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
            rest.push(take_results(next, &calls, &mut results, names));
        }
        if !calls.is_empty() {
            let answers = calls.into_iter().map(|id| {
                let missing = || missing_result(&id, names);
                results.remove(&id).unwrap_or_else(missing)
            });
            paired.push(Message { role: Role::User, content: answers.collect() });
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
    names: &HashMap<String, String>,
) -> Message {
    let mut content = Vec::with_capacity(message.content.len());
    for block in message.content {
        match &block {
            Block::ToolResult { id, .. } if calls.contains(id) => {
                results.insert(id.clone(), block);
            }
            Block::ToolResult { .. } => content.extend(result_text(&block, names)),
            _ => content.push(block),
        }
    }
    Message { role: message.role, content }
}

/// The result of a call that has none.
fn missing_result(id: &str, names: &HashMap<String, String>) -> Block {
    Block::ToolResult {
        id: id.to_owned(),
        name: names.get(id).cloned(),
        content: vec![Block::text("no result was given")],
        is_error: true,
    }
}

/// The beginning of a text.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_TOOL_TEXT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Keeps the last of several equal tool results. Agents read the same file again and again.
fn drop_repeated_results(parts: &mut [(NodeUse, Option<Message>)]) {
    let mut seen = std::collections::HashSet::new();
    for (used, message) in parts.iter_mut().rev() {
        let Some(whole) = message else { continue };
        whole.content.retain(|block| match block {
            Block::Text { text, .. } if text.starts_with("[tool ") => seen.insert(text.clone()),
            _ => true,
        });
        if whole.content.is_empty() {
            (used.form, used.reason) = (Form::LeftOut, Why::Empty);
            *message = None;
        }
    }
}

/// Fills the budget with the newest nodes. The present turn always stays. An earlier turn is kept
/// whole or not at all, because a history begins with a user message.
fn fit(parts: &mut [(NodeUse, Option<Message>)], keep_from: usize, budget: Option<u64>) {
    let Some(budget) = budget else { return };
    let size = |part: &(NodeUse, Option<Message>)| part.1.as_ref().map_or(0, tokens);
    let mut left = budget.saturating_sub(parts[keep_from..].iter().map(size).sum());
    let mut first = keep_from;
    while first > 0 {
        let is_start = |part: &(NodeUse, Option<Message>)| {
            let is_result = |block: &Block| matches!(block, Block::ToolResult { .. });
            let message = part.1.as_ref();
            message.is_some_and(|message| {
                message.role == Role::User && !message.content.iter().any(is_result)
            })
        };
        let start = parts[..first].iter().rposition(is_start).unwrap_or(0);
        let turn: u64 = parts[start..first].iter().map(size).sum();
        if turn > left {
            break;
        }
        left -= turn;
        first = start;
    }
    for (used, message) in &mut parts[..first] {
        if message.take().is_some() {
            (used.form, used.reason) = (Form::LeftOut, Why::Budget);
        }
    }
}

/// About how many tokens a message has.
fn tokens(message: &Message) -> u64 {
    message.content.iter().map(block_tokens).sum()
}

fn block_tokens(block: &Block) -> u64 {
    let of = |text: &str| (text.len() as u64).div_ceil(BYTES_PER_TOKEN);
    match block {
        Block::Text { text, .. } | Block::Refusal { text } | Block::Thinking { text, .. } => {
            of(text)
        }
        Block::Redacted { data } => of(data),
        Block::ToolCall { name, arguments, .. } => of(name) + of(arguments),
        Block::ToolResult { content, .. } => content.iter().map(block_tokens).sum(),
        Block::Media { .. } => MEDIA_TOKENS,
        Block::Opaque { value, .. } => of(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use throughline_canonical::Origin;
    use throughline_sealing::Keyring;

    use super::*;

    const TARGET: Target<'_> = Target { provider: "a", model: "m", budget: None };

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
        for (budget, kept) in [(10_000, 7), (1_300, 5), (1_100, 3), (0, 3)] {
            let target = Target { budget: Some(budget), ..TARGET };
            let context = assemble(path.clone(), &target, &envelopes());
            assert_eq!(context.messages.len(), kept, "{budget}");
            let left_out = forms(&context).iter().filter(|used| used.2 == Why::Budget).count();
            assert_eq!(left_out, 7 - kept, "{budget}");
        }
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
