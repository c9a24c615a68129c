//! `parse`: reads the text of a model and writes events as lines.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::support::{BINARY, CommandOutput, folder, run};

/// Starts `parse` with these arguments.
fn start(arguments: &[&str]) -> Child {
    Command::new(BINARY)
        .arg("parse")
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Runs `parse` over a text.
async fn parse(arguments: &[&str], text: &[u8]) -> CommandOutput {
    let mut child = start(arguments);
    let mut input = child.stdin.take().unwrap();
    let text = text.to_owned();
    // Read and write at the same time, because either pipe may fill up. A command that rejects its
    // arguments does not read at all.
    let write = tokio::spawn(async move {
        let _ = input.write_all(&text).await;
    });
    let output = tokio::time::timeout(Duration::from_secs(30), child.wait_with_output());
    let output = output.await.expect("it ends in time").unwrap();
    write.await.unwrap();
    CommandOutput {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Returns the events of a text in a short form, with neighbouring deltas joined.
async fn events(arguments: &[&str], text: impl AsRef<[u8]>) -> Vec<String> {
    let out = parse(arguments, text.as_ref()).await.expect_ok();
    let mut all: Vec<(String, String)> = Vec::new();
    for line in out.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let word = |key: &str| line[key].as_str().unwrap().to_owned();
        let kind = word("type");
        let (head, rest) = match kind.as_str() {
            "reasoning" | "content" => (format!("{kind}: "), word("delta")),
            "tool_call_args" => (format!("args {}: ", line["index"]), word("delta")),
            "tool_call_start" => {
                assert!(!word("id").is_empty());
                (format!("start {}: ", line["index"]), word("name"))
            }
            "tool_call_end" => (format!("end {}", line["index"]), String::new()),
            "error" => {
                assert!(!word("message").is_empty());
                ("error: ".to_owned(), word("kind"))
            }
            "end" => ("end: ".to_owned(), word("reason")),
            other => panic!("no line has the type {other}"),
        };
        match all.last_mut() {
            Some((before, delta)) if *before == head && line["delta"].is_string() => {
                delta.push_str(&rest);
            }
            _ => all.push((head, rest)),
        }
    }
    let ends = all.iter().filter(|(head, _)| head == "end: ").count();
    assert_eq!(ends, 1, "{out}");
    assert_eq!(all.last().unwrap().0, "end: ", "{out}");
    all.into_iter().map(|(head, rest)| head + &rest).collect()
}

/// Checks that the events are the same for every chunk size.
async fn check(arguments: &[&str], text: &str, expected: &[&str]) {
    for chunk in [&[][..], &["--chunk", "0"], &["--chunk", "1"], &["--chunk", "7"]] {
        let found = events(&[arguments, chunk].concat(), text).await;
        assert_eq!(found, expected, "{arguments:?} {chunk:?} {text}");
    }
}

const HERMES: [&str; 4] = ["--reasoning", "think", "--tool-format", "hermes"];

/// Covers: case 18, case 19, case 20, case 21, case 23, case 24, case 25, case 26, case 27,
/// case 28, case 29, case 30, S2-18, S2-19, S2-20, S2-21, S2-45
#[tokio::test]
async fn reasoning_text_and_tool_calls_are_separated() {
    let reasoned = ["reasoning: abc", "content: xyz", "end: stop"];
    check(&[], "<think>abc</think>xyz", &reasoned).await;
    check(&[], "<think>\nabc\n</think>\n\nxyz", &reasoned).await;
    for text in ["<think></think>answer", "<think> \n </think>answer"] {
        check(&[], text, &["content: answer", "end: stop"]).await;
    }
    let unclosed = ["reasoning: just thinking", "end: unclosed_reasoning"];
    check(&[], "<think>just thinking", &unclosed).await;
    check(
        &["--family", "qwen3", "--implicit-reasoning"],
        "plan…</think>\n<tool_call>{\"name\":\"search\",\"arguments\":{\"q\":\"x\"}}</tool_call>",
        &[
            "reasoning: plan…",
            "start 0: search",
            "args 0: {\"q\":\"x\"}",
            "end 0",
            "end: tool_calls",
        ],
    )
    .await;
    // A tool call inside reasoning is not a call.
    let draft = "so <tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call> no";
    check(
        &HERMES,
        &format!("<think>{draft}</think>done"),
        &[&format!("reasoning: {draft}"), "content: done", "end: stop"],
    )
    .await;
    for arguments in [
        r#"{"text":"<think>inside</think>\n```js\nx\n```"}"#,
        r#"{"text":"</tool_call> and {\"}\" \u00e9 \\"}"#,
        "{}",
    ] {
        let text = format!(
            "<tool_call>\n{{\"name\":\"test\",\"arguments\":{arguments}}}\n</tool_call>after"
        );
        let expected = [
            "start 0: test",
            &format!("args 0: {arguments}"),
            "end 0",
            "content: after",
            "end: tool_calls",
        ];
        check(&HERMES, &text, &expected).await;
    }
    let cut = "<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"location\":\"NYC\"}";
    check(
        &HERMES,
        cut,
        &["start 0: get_weather", "args 0: {\"location\":\"NYC\"}", "end 0", "end: tool_calls"],
    )
    .await;
    let events_found = events(&[&HERMES[..], &["--on-error", "error"]].concat(), cut).await;
    let last = &events_found[events_found.len() - 2..];
    assert_eq!(last, ["error: tool_call_parse_error", "end: error"]);
    let two = [
        "content: Both. ",
        "start 0: a",
        "args 0: {\"x\":1}",
        "end 0",
        "start 1: b",
        "args 1: {\"y\":[2]}",
        "end 1",
        "end: tool_calls",
    ];
    for (format, text) in [
        (
            "mistral",
            r#"Both. [TOOL_CALLS] [{"name":"a","arguments":{"x":1}}, {"name":"b","arguments":{"y":[2]}}]"#,
        ),
        (
            "llama_function",
            "Both. <function=a>{\"x\":1}</function>\n<function=b>{\"y\":[2]}</function>",
        ),
        (
            "hermes",
            "Both. <tool_call>{\"name\":\"a\",\"arguments\":{\"x\":1}}</tool_call>\n<tool_call>{\"name\":\"b\",\"arguments\":{\"y\":[2]}}</tool_call>",
        ),
    ] {
        check(&["--tool-format", format], text, &two).await;
    }
    let bare = ["start 0: a", "args 0: {\"x\":1}", "end 0", "end: tool_calls"];
    let text = r#"{"name": "a", "arguments": {"x":1}}"#;
    check(&["--tool-format", "json"], text, &bare).await;
    let shown = "Write:\n```json\n{\"name\": \"a\", \"arguments\": {\"x\":1}}\n```\nThat is all.";
    let expected = [&format!("content: {shown}"), "end: stop"];
    check(&["--tool-format", "json,hermes"], shown, &expected).await;
}

#[tokio::test]
async fn each_event_is_one_line() {
    let text = "<think>a \"plan\"</think>b\n<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":1}}</tool_call>";
    let all = [&HERMES[..], &["--chunk", "0"]].concat();
    let out = parse(&all, text.as_bytes()).await.expect_ok();
    for line in [
        r#"{"type":"reasoning","delta":"a \"plan\""}"#,
        r#"{"type":"tool_call_start","index":0,"id":"call_0","name":"f"}"#,
        r#"{"type":"tool_call_end","index":0}"#,
    ] {
        assert!(out.lines().any(|found| found == line), "{out}\nlacks {line}");
    }
    assert!(out.ends_with("{\"type\":\"end\",\"reason\":\"tool_calls\"}\n"), "{out}");
}

#[tokio::test]
async fn broken_text_is_reported_as_events() {
    for text in [
        &b""[..],
        b" ",
        b"</think>",
        b"<think",
        b"<tool_call>",
        b"<tool_call>not JSON</tool_call> rest",
        b"<tool_call>{\"name\":",
        b"<tool_call>{\"name\":\"a\",\"arguments\":{\"b\":",
        b"<tool_call>{\"name\":\"a\",\"arguments\":{\"b\":1,}}</tool_call>",
        b"\xff<think>\xe2\x82</think>\xf0\x9f",
    ] {
        for policy in ["text", "error"] {
            let whole = [&HERMES[..], &["--on-error", policy, "--chunk", "0"]].concat();
            let found = events(&whole, text).await;
            let single = [&HERMES[..], &["--on-error", policy, "--chunk", "1"]].concat();
            assert_eq!(events(&single, text).await, found);
        }
    }
    // All of the text comes back, and the parser continues after it.
    let (broken, good) =
        ("<tool_call>not JSON</tool_call>", "<tool_call>{\"name\":\"a\"}</tool_call>");
    let calls = ["start 0: a", "args 0: {}", "end 0", "end: tool_calls"];
    let text = format!("{broken}{good}");
    let mut expected = vec![format!("content: {broken}")];
    expected.extend(calls.map(str::to_owned));
    assert_eq!(events(&HERMES, &text).await, expected);
    let events_found = events(&[&HERMES[..], &["--on-error", "ERROR"]].concat(), &text).await;
    assert_eq!(events_found[0], "error: tool_call_parse_error");
    assert_eq!(events_found[1..4], calls[..3]);
    assert_eq!(events_found[4..], ["end: error"]);
}

#[tokio::test]
async fn flags_replace_parts_of_a_family() {
    let text = "<think>a</think>b<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
    let call = ["start 0: f", "args 0: {}", "end 0", "end: tool_calls"];
    let call_as_text = "b<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
    let with = |first: &[&str]| {
        [first, &call].concat().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for (arguments, expected) in [
        (&["--family", "qwen3"][..], with(&["reasoning: a", "content: b"])),
        (&["--family", "QWEN3"], with(&["reasoning: a", "content: b"])),
        (&["--model", "Qwen/Qwen3-8B"], with(&["reasoning: a", "content: b"])),
        (&["--family", "auto", "--model", "Qwen/Qwen3-8B"], with(&["reasoning: a", "content: b"])),
        (&["--family", "qwen3", "--reasoning", "none"], with(&["content: <think>a</think>b"])),
        (&["--tool-format", "Hermes"], with(&["content: <think>a</think>b"])),
        (&["--tool-format", "mistral,hermes"], with(&["content: <think>a</think>b"])),
        (
            &["--tool-format", "mistral", "--tool-format", "hermes"],
            with(&["content: <think>a</think>b"]),
        ),
        (
            &["--family", "qwen3", "--tool-format", "none"],
            vec!["reasoning: a".into(), format!("content: {call_as_text}"), "end: stop".into()],
        ),
        (
            &["--model", "nobody/knows-it"],
            vec!["reasoning: a".into(), format!("content: {call_as_text}"), "end: stop".into()],
        ),
        (&["--family", "none"], vec![format!("content: {text}"), "end: stop".into()]),
        (
            &["--family", "none", "--reasoning", "think"],
            vec!["reasoning: a".into(), format!("content: {call_as_text}"), "end: stop".into()],
        ),
    ] {
        assert_eq!(events(arguments, text).await, expected, "{arguments:?}");
    }
    let implicit = ["reasoning: a", "content: b", "end: stop"];
    for arguments in [
        &["--implicit-reasoning"][..],
        &["--implicit-reasoning", "--tool-format", "hermes"],
        &["--reasoning", "think", "--implicit-reasoning"],
        &["--family", "mistral", "--reasoning", "think", "--implicit-reasoning"],
    ] {
        check(arguments, "a</think>b", &implicit).await;
    }
}

#[tokio::test]
async fn implicit_reasoning_replaces_the_default_of_the_family() {
    let inside = ["reasoning: a", "content: b", "end: stop"];
    for arguments in [
        &["--family", "deepseek-r1"][..],
        &["--family", "qwen3", "--implicit-reasoning"],
        &["--family", "qwen3", "--implicit-reasoning=true"],
        &["--family", "llama-3", "--implicit-reasoning"],
    ] {
        check(arguments, "a</think>b", &inside).await;
    }
    let outside = ["content: ab", "end: stop"];
    for arguments in [
        &["--family", "deepseek-r1", "--implicit-reasoning=false"][..],
        &["--model", "Qwen/QwQ-32B", "--implicit-reasoning=false"],
        &["--reasoning", "step3p5", "--implicit-reasoning=false"],
    ] {
        check(arguments, "a</think>b", &outside).await;
    }
    let off = &["--family", "kimi-k3", "--implicit-reasoning=false"];
    let text = "a<|close|>response<|sep|><|close|>message<|sep|>";
    check(off, text, &["content: a", "end: stop"]).await;
    let off = &["--family", "beam", "--implicit-reasoning=false"];
    check(off, "a", &["content: a", "end: stop"]).await;
    parse(&["--implicit-reasoning=maybe"], b"a").await.expect_error(2, &["maybe"]);
}

#[tokio::test]
async fn without_offered_tools_bare_json_is_content() {
    let folder = folder();
    let path = folder.path().join("tools.json");
    std::fs::write(&path, "[]").unwrap();
    let path = path.to_str().unwrap();
    let json = r#"{"name": "search", "arguments": {"q": "x"}}"#;
    let call = ["start 0: search", r#"args 0: {"q": "x"}"#, "end 0", "end: tool_calls"];
    for flags in [&["--tool-format", "json"][..], &["--family", "llama-3"]] {
        // It is not known which tools were offered: the shape decides.
        check(flags, json, &call).await;
        let none = [flags, &["--tools", path]].concat();
        check(&none, json, &[&format!("content: {json}"), "end: stop"]).await;
    }
    // After a marker, the name is not checked.
    let marked = format!("<|python_tag|>{json}");
    check(&["--family", "llama-3", "--tools", path], &marked, &call).await;
}

/// Covers: C-9
#[tokio::test]
async fn reasoning_keeps_its_tags_on_request() {
    for (form, expected) in [
        ("split", &["reasoning: a", "content: b", "end: stop"][..]),
        ("raw", &["reasoning: <think>a</think>", "content: b", "end: stop"]),
        ("none", &["content: <think>a</think>b", "end: stop"]),
    ] {
        check(&["--reasoning-format", form], "<think>a</think>b", expected).await;
    }
}

#[tokio::test]
async fn available_names_are_listed() {
    let flags = ["--family", "--reasoning", "--tool-format"];
    let mut listed = Vec::new();
    for flag in flags {
        let table = parse(&[flag, "list"], b"").await.expect_ok();
        let json = parse(&[flag, "list", "--json"], b"").await.expect_ok();
        let rows: Vec<Value> = serde_json::from_str(&json).unwrap();
        assert_eq!(table.lines().count(), rows.len() + 1, "{table}");
        for row in &rows {
            let name = row["name"].as_str().unwrap().to_owned();
            let line = format!("\n{name} ");
            assert!(table.contains(&line), "{table}\nlacks {name}");
            let read = events(&[flag, &name, "--reasoning-format", "none"], "hi").await;
            let content = read[0].strip_prefix("content: ");
            assert!(
                content.is_some_and(|output| output.ends_with("hi")),
                "{flag} {name}: {read:?}"
            );
        }
        listed.push(rows);
    }
    let qwen = listed[0].iter().find(|row| row["name"] == "qwen3").unwrap();
    assert_eq!(qwen["reasoning"], "think");
    assert!(qwen["tools"].as_array().unwrap().contains(&"hermes".into()));
    assert_eq!(qwen["implicit"], false);
    assert!(qwen["models"].as_array().is_some_and(|models| !models.is_empty()));
    let hermes = listed[2].iter().find(|row| row["name"] == "hermes").unwrap();
    assert!(hermes["families"].as_array().unwrap().contains(&"qwen3".into()));
}

#[tokio::test]
async fn rejects_an_unknown_name_with_the_known_ones() {
    for (arguments, words) in [
        (["--family", "qwen33"], &["`qwen33`", "qwen3", "mistral"][..]),
        (["--reasoning", "thinkk"], &["`thinkk`", "think", "plain"]),
        (["--tool-format", "hermez"], &["`hermez`", "hermes", "llama_function"]),
        (["--tool-format", "hermes,hermez"], &["`hermez`", "mistral"]),
    ] {
        parse(&arguments, b"text").await.expect_error(2, words);
        let beside = [&["--family", "qwen3"], &arguments[..]].concat();
        if arguments[0] != "--family" {
            parse(&beside, b"text").await.expect_error(2, words);
        }
    }
}

#[tokio::test]
async fn tool_file_is_read_or_rejected_with_a_position() {
    let folder = folder();
    let path = folder.path().join("tools.json");
    let path = path.to_str().unwrap();
    let arguments = ["--tool-format", "json", "--tools", path];
    parse(&arguments, b"")
        .await
        .expect_error(2, &["tools.json", "cannot read", "a JSON list of tools"]);
    for (tools, words) in [
        ("[\n  {\"name\": \"a\"},\n  {\"name\" \"b\"}\n]", "tools.json:3:11: expected `:`"),
        ("[{\"name\": \"a\"", "tools.json:1:13: EOF"),
        ("", "tools.json:1:1: EOF"),
        ("{\"name\": \"a\"}", "tools.json:1:1: invalid type: map"),
        (
            "[\n  {\"name\": \"a\"},\n  {\"nom\": \"b\"}]",
            "tools.json:3:3: tool 2 of the list has no name",
        ),
        ("[\"ä\", 3]", "tools.json:1:2: tool 1 of the list has no name"),
    ] {
        std::fs::write(path, tools).unwrap();
        let words = [words, "expected a JSON list of tools", "`{name, description?, parameters}`"];
        parse(&arguments, b"").await.expect_error(2, &words);
    }
    // Plain JSON is a call only if its tool was offered.
    let tools = r#"[{"type":"function","function":{"name":"a","parameters":{"type":"object"}}}, {"name":"c"}]"#;
    std::fs::write(path, tools).unwrap();
    for (name, calls) in [("a", true), ("b", false), ("c", true)] {
        let text = format!("{{\"name\":\"{name}\",\"arguments\":{{}}}}");
        let found = events(&arguments, &text).await;
        let expected = if calls { format!("start 0: {name}") } else { format!("content: {text}") };
        assert_eq!(found[0], expected);
    }
}

/// Returns the next line as JSON.
async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Value {
    let line = tokio::time::timeout(Duration::from_secs(20), lines.next_line());
    let line = line.await.expect("a line in time").unwrap();
    serde_json::from_str(&line.expect("a line")).unwrap()
}

/// Covers: S2-22
#[tokio::test]
async fn lines_are_written_while_the_text_arrives() {
    let mut child = start(&["--family", "qwen3"]);
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for (text, kind, delta) in [
        ("<think>Let me", "reasoning", "Let me"),
        (" see.\n</think>\n\nHello", "reasoning", " see."),
        ("", "content", "Hello"),
        ("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a", "tool_call_start", ""),
        ("", "tool_call_args", "{\"a"),
        ("\": 1", "tool_call_args", "\": 1"),
    ] {
        input.write_all(text.as_bytes()).await.unwrap();
        input.flush().await.unwrap();
        let (mut whole, mut found) = (String::new(), Value::Null);
        // A delta may be split over several lines.
        while whole.len() < delta.len() || found.is_null() {
            found = next(&mut lines).await;
            assert_eq!(found["type"], kind, "{found}");
            whole.push_str(found["delta"].as_str().unwrap_or_default());
        }
        assert_eq!(whole, delta);
    }
    drop(input);
    assert_eq!(next(&mut lines).await["reason"], "unclosed_tool_call");
    let ended = child.wait_with_output().await.unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
}

#[tokio::test]
async fn closed_output_pipe_is_no_failure() {
    let mut child = start(&[]);
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    input.write_all(b"first").await.unwrap();
    assert_eq!(next(&mut lines).await["delta"], "first");
    drop(lines);
    // The command notices at its next line, and stops reading.
    let text = [b'x'; 4096];
    let write = async { while input.write_all(&text).await.is_ok() {} };
    let stopped = tokio::time::timeout(Duration::from_secs(20), write).await;
    stopped.expect("it stops in time");
    let ended = child.wait_with_output().await.unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
}

/// It needs no configuration, no key and no folder of its own.
#[tokio::test]
async fn parse_writes_no_files() {
    let folder = folder();
    run(folder.path(), &["parse", "--family", "qwen3"], &[]).await.expect_ok();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
