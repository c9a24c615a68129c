//! Limits and arbitrary input of the reply reader. Its ordinary cases are in
//! `corpus/openai_chat/upstream_reply`.

use proptest::prelude::*;
use serde_json::{Value, json};
use throughline_canonical::EndReason;

use super::*;

#[test]
fn a_reply_over_the_limit_is_a_fault() {
    let mut reader =
        OpenAiChat.reply_reader(&Target { model: "m", profile: OpenAiChat.profile("") }, true);
    let mut events = Vec::new();
    let mut take = |event: Event<'_>| events.push(serde_json::to_string(&event).unwrap());
    reader.push(b"data: {\"choices\":[{\"delta\":{\"content\":\"", &mut take);
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..17 {
        reader.push(&piece, &mut take);
    }
    reader.finish(&mut take);
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events[0].contains("too long") && events[1].contains("failed"));
    let mut reader =
        OpenAiChat.reply_reader(&Target { model: "m", profile: OpenAiChat.profile("") }, false);
    let mut events = Vec::new();
    for _ in 0..65 {
        reader.push(&piece, &mut |event| {
            events.push(serde_json::to_string(&event).unwrap());
        });
    }
    reader.finish(&mut |event| events.push(serde_json::to_string(&event).unwrap()));
    assert_eq!(events.len(), 2, "{events:?}");
}

#[test]
fn too_many_calls_are_a_fault() {
    let calls: Vec<Value> = (0..5000)
        .map(|number| json!({"index": number, "id": format!("c{number}"), "function": {"name": "f", "arguments": "{}"}}))
        .collect();
    let body = json!({"choices": [{"message": {"tool_calls": calls}, "finish_reason": "stop"}]});
    let reply = read_reply("openai", false, body.to_string().as_bytes());
    assert_eq!(reply.reason, Some(EndReason::Failed));
}

proptest! {
    #[test]
    fn arbitrary_bytes_end_in_exactly_one_end(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        words in proptest::collection::vec(prop_oneof![
            Just("data: "), Just("{\"choices\":[{\"delta\":{"), Just("\"content\":"), Just("\"reasoning_details\":["),
            Just("\"tool_calls\":[{"), Just("\"index\":0"), Just("null"), Just("\"x\""), Just("}"), Just("]"), Just(","),
            Just("\n\n"), Just("[DONE]"), Just("{"), Just("["), Just("\"function\":{\"name\":\"f\"}"), Just("\"type\":\"thinking\""),
            Just("\"thinking\":["), Just("\"usage\":{"), Just("\"error\":"), Just("\"finish_reason\":\"stop\""),
        ], 0..40),
        streamed in any::<bool>(),
    ) {
        for bytes in [bytes, words.concat().into_bytes()] {
            let (events, _) = read_pieces("openrouter", streamed, &[&bytes]);
            prop_assert_eq!(events.iter().filter(|event| event.contains(r#""type":"ended""#)).count(), 1);
        }
    }
}
