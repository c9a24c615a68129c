//! Reads a stream and checks every rule of its events.

use std::collections::HashMap;

use serde_json::{Value, json};

/// An added item, and the content of its events so far.
struct Open {
    item: Value,
    /// The texts of its parts, by their event's family and index.
    texts: HashMap<(String, u64), String>,
    /// The closed ones.
    done: usize,
}

/// Checks every rule of a stream and returns the response at its end.
pub(crate) fn assemble(events: &[Value]) -> Value {
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
    }
    let first = events.first().unwrap();
    assert_eq!(first["type"], "response.created");
    let start = &first["response"];
    assert_eq!(start["status"], "in_progress");
    assert_eq!(start["output"], json!([]));
    assert_eq!(start["usage"], Value::Null);
    let (last, inner) = events[1..].split_last().unwrap();
    let mut finished: Vec<Value> = Vec::new();
    let mut open: Option<Open> = None;
    for event in inner {
        let kind = event["type"].as_str().unwrap();
        match kind {
            "response.in_progress" => assert_eq!(event["response"], *start),
            "response.output_item.added" => {
                assert!(open.is_none());
                assert_eq!(event["output_index"], finished.len());
                let item = event["item"].clone();
                check_start(&item);
                open = Some(Open { item, texts: HashMap::new(), done: 0 });
            }
            "response.output_item.done" => {
                assert_eq!(event["output_index"], finished.len());
                let open = open.take().unwrap();
                assert_eq!(open.done, open.texts.len(), "a part was left open");
                let item = event["item"].clone();
                for key in ["id", "type", "call_id", "name", "role", "phase"] {
                    assert_eq!(item.get(key), open.item.get(key), "{key}");
                }
                check_texts(&item, &open);
                finished.push(item);
            }
            _ => {
                let open = open.as_mut().unwrap();
                assert_eq!(event["output_index"], finished.len());
                assert_eq!(event["item_id"], open.item["id"]);
                part(open, kind, event);
            }
        }
    }
    let response = last["response"].clone();
    for key in ["id", "created_at", "model", "tools", "object"] {
        assert_eq!(response[key], start[key]);
    }
    assert_eq!(response["output"].as_array(), Some(&finished));
    let status = response["status"].as_str().unwrap();
    assert_eq!(last["type"], format!("response.{status}"));
    assert!(open.is_none() || status == "failed");
    response
}

fn check_start(item: &Value) {
    match item["type"].as_str().unwrap() {
        "reasoning" => {
            assert!(item["id"].as_str().unwrap().starts_with("rs_"));
            assert_eq!(item["summary"], json!([]));
        }
        "message" => {
            assert!(item["id"].as_str().unwrap().starts_with("msg_"));
            assert_eq!(item["content"], json!([]));
            assert_eq!(item["status"], "in_progress");
        }
        "function_call" => {
            assert!(item["id"].as_str().unwrap().starts_with("fc_"));
            assert!(item["call_id"].as_str().unwrap().starts_with("call_"));
            assert_eq!(item["arguments"], "");
            assert_eq!(item["status"], "in_progress");
        }
        other => panic!("{other}"),
    }
}

/// Checks an event of a part: its item and its order.
fn part(open: &mut Open, kind: &str, event: &Value) {
    let (family, step) = kind.rsplit_once('.').unwrap();
    let index = event["summary_index"].as_u64();
    let index = index.or(event["content_index"].as_u64()).unwrap_or(0);
    let (holder, is_part) = match family {
        "response.reasoning_summary_part" | "response.reasoning_summary_text" => {
            assert_eq!(open.item["type"], "reasoning");
            ("summary", family.ends_with("part"))
        }
        "response.content_part" => ("content", true),
        "response.output_text" | "response.refusal" => {
            assert_eq!(open.item["type"], "message");
            ("content", false)
        }
        "response.reasoning_text" => ("content", false),
        "response.function_call_arguments" => {
            assert_eq!(open.item["type"], "function_call");
            if step == "delta" {
                open.texts.entry(("arguments".to_owned(), 0)).or_default();
            }
            ("arguments", false)
        }
        other => panic!("{other}"),
    };
    if family == "response.output_text" {
        assert_eq!(event["logprobs"], json!([]));
    }
    let key = (holder.to_owned(), index);
    match (is_part, step) {
        (true, "added") => {
            assert_eq!(text_of(&event["part"]), "");
            assert!(open.texts.insert(key, String::new()).is_none());
        }
        (true, "done") => {
            assert_eq!(text_of(&event["part"]), open.texts[&key]);
            open.done += 1;
        }
        (false, "delta") => {
            let text = open.texts.get_mut(&key).unwrap();
            text.push_str(event["delta"].as_str().unwrap());
        }
        (false, "done") => {
            let whole = ["text", "refusal", "arguments"];
            let whole = whole.iter().find_map(|key| event[key].as_str());
            assert_eq!(whole, Some(open.texts[&key].as_str()));
            open.done += usize::from(holder == "arguments");
        }
        other => panic!("{other:?}"),
    }
}

fn text_of(part: &Value) -> &str {
    if part["type"] == "output_text" {
        assert_eq!(part["annotations"], json!([]));
        assert_eq!(part["logprobs"], json!([]));
    }
    let text = part["text"].as_str().or(part["refusal"].as_str());
    text.unwrap()
}

fn check_texts(item: &Value, open: &Open) {
    let mut count = 0;
    for holder in ["summary", "content"] {
        let parts = item[holder].as_array().into_iter().flatten();
        for (index, part) in parts.enumerate() {
            let key = (holder.to_owned(), index as u64);
            assert_eq!(text_of(part), open.texts[&key]);
            count += 1;
        }
    }
    if let Some(arguments) = item["arguments"].as_str() {
        assert_eq!(arguments, open.texts[&("arguments".to_owned(), 0)]);
        count += 1;
    }
    assert_eq!(count, open.texts.len());
}
