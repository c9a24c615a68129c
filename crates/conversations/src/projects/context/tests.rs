//! Tests of what a request gets of the past.

use throughline_canonical::Usage;
use throughline_sealing::Keyring;

use super::super::tool_text::MAX_TOOL_TEXT;
use super::*;

const TARGET: Target<'_> =
    Target { provider: "a", model: "m", window: None, fixed: 0, member: None };

fn envelopes() -> Envelopes {
    Envelopes::new(Arc::new(Keyring::new([1; 32])))
}

fn node(id: &str, role: NodeRole, made_by: Option<(&str, &str)>, blocks: Vec<Block>) -> PastNode {
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

/// The history of a branch of which all nodes were read.
fn assembled(path: Vec<PastNode>, target: &Target<'_>, envelopes: &Envelopes) -> Context {
    assemble(path, Vec::new(), target, envelopes)
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
    let context = assembled(path, &TARGET, &envelopes());
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
    let context = assembled(path, &TARGET, &envelopes());
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
    let context = assembled(path, &TARGET, &envelopes());
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
        let context = assembled(path.clone(), &target, &envelopes());
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
    let context = assembled(path.clone(), &Target { window, fixed: 400, ..TARGET }, &envelopes());
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
    let estimated = assembled(vec![path[0].clone()], &TARGET, &envelopes());
    assert_eq!((estimated.tokens, estimated.estimated), (1_012, 1_012));
    let context = assembled(path.clone(), &TARGET, &envelopes());
    assert_eq!((context.tokens, context.estimated), (253 + 20 + 14, 1_012 + 20 + 14));
    // A window that the estimate alone would exceed.
    let window = Some(Window { tokens: 300, fixed: 0 });
    let context = assembled(path.clone(), &Target { window, ..TARGET }, &envelopes());
    assert_eq!(context.messages.len(), 3);
    // Another model counts differently.
    let other = Target { window, model: "n", ..TARGET };
    assert_eq!(assembled(path, &other, &envelopes()).messages.len(), 1);
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
    let context = assembled(path, &TARGET, &envelopes());
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
    let context = assembled(path, &TARGET, &envelopes());
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
    let context = assembled(path, &TARGET, &envelopes());
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
    let context = assembled(vec![user("1", "x"), old, user("3", "y")], &TARGET, &envelopes());
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
    let context = assembled(path, &TARGET, &envelopes());
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
    let context = assembled(path, &TARGET, &envelopes());
    assert_eq!(context.messages[2].content, [Block::text("[tool read returned: one]")]);
    let newest = ("c2".to_owned(), "sent again".to_owned(), false);
    assert_eq!(results_of(&context.messages[4]), [newest]);
    assert_eq!(context.messages.len(), 5);
}

/// A branch with turns of several lengths, tool loops, a cut answer, and answers of two models.
fn long_branch() -> Vec<PastNode> {
    let call = |id: &str| Block::ToolCall {
        id: id.to_owned(),
        name: "read".to_owned(),
        arguments: "{}".to_owned(),
        signature: None,
    };
    let result = |id: &str, length| Block::ToolResult {
        id: id.to_owned(),
        name: None,
        content: vec![Block::text("r".repeat(length))],
        is_error: false,
    };
    let mut path = vec![answer("greeting", ("a", "m"), "Hello.")];
    for turn in 0..30 {
        let id = |part: &str| format!("{part}_{turn}");
        path.push(user(&id("question"), &"q".repeat(turn * 37 % 400)));
        if turn % 4 == 1 {
            let called = vec![call(&id("call"))];
            path.push(node(&id("calls"), NodeRole::Assistant, Some(("a", "m")), called));
            let results = vec![result(&id("call"), turn * 53 % 900)];
            path.push(node(&id("results"), NodeRole::User, None, results));
        }
        let made_by = if turn % 11 == 3 { ("b", "m") } else { ("a", "m") };
        let mut said = answer(&id("answer"), made_by, &"a".repeat(turn * 71 % 700));
        said.content.estimated_input = Some(1_000);
        said.facts.usage = Some(Usage { input: Some(600 + turn as u64), ..Usage::default() });
        if turn % 9 == 0 {
            said.facts.status = NodeStatus::Interrupted;
        }
        path.push(said);
    }
    path.push(user("last", "And then?"));
    path
}

fn earlier(nodes: &[PastNode]) -> Vec<EarlierNode> {
    let unread = |node: &PastNode| EarlierNode {
        id: node.id.clone(),
        facts: node.facts.clone(),
        has_thinking: node.content.has_thinking(),
    };
    nodes.iter().map(unread).collect()
}

/// The messages as they are sent. Envelopes have random bytes, so signatures only count.
fn sent(context: &Context) -> Vec<String> {
    let show = |message: &Message| {
        let blocks = message.content.iter().map(|block| match block {
            Block::Thinking { text, signature } => {
                format!("thinking {text} {}", signature.is_some())
            }
            Block::ToolCall { id, name, arguments, .. } => format!("call {id} {name} {arguments}"),
            other => format!("{other:?}"),
        });
        format!("{:?} {:?}", message.role, blocks.collect::<Vec<_>>())
    };
    context.messages.iter().map(show).collect()
}

#[test]
fn nodes_before_a_full_window_change_nothing_that_is_sent() {
    let path = long_branch();
    let mut checked = 0;
    for (model, member) in [("m", None), ("n", None), ("m", Some("ada"))] {
        for tokens in (0..9_000).step_by(173) {
            let window = Some(Window { tokens, fixed: 50 });
            let target = Target { model, window, fixed: 50, member, ..TARGET };
            let whole = assembled(path.clone(), &target, &envelopes());
            for at in 1..path.len() {
                if !fills_window(&path[at..], &target) {
                    continue;
                }
                checked += 1;
                let before = earlier(&path[..at]);
                let read = assemble(path[at..].to_vec(), before, &target, &envelopes());
                let place = format!("{model} {tokens} {at}");
                assert_eq!(sent(&read), sent(&whole), "{place}");
                assert_eq!((read.tokens, read.estimated), (whole.tokens, whole.estimated));
                assert_eq!(forms(&read)[at..], forms(&whole)[at..], "{place}");
                assert_eq!(read.nodes.len(), path.len(), "{place}");
                assert_eq!(read.left_out.len(), whole.left_out.len(), "{place}");
            }
        }
    }
    assert!(checked > 500, "{checked}");
}

#[test]
fn window_is_not_known_to_be_full_without_a_count_a_question_and_all_calls() {
    let path = long_branch();
    let target = Target { window: Some(Window { tokens: 0, fixed: 0 }), ..TARGET };
    assert!(fills_window(&path, &target));
    assert!(!fills_window(&path, &Target { model: "n", ..target }), "no request was counted");
    assert!(!fills_window(&path, &TARGET), "no window");
    let results = path.iter().position(|node| node.id == "results_29").expect("a loop");
    assert!(!fills_window(&path[results..], &target), "a result without its call");
    let last_answer = &path[path.len() - 2..path.len() - 1];
    assert!(!fills_window(last_answer, &target), "no question");
}
