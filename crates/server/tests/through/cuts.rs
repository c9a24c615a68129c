//! Replies that end before their end: the client is told, in its dialect, and gets past half an event.

use http::Method;
use serde_json::Value;

use crate::support::{ALL, CHAT, GEMINI, JSON, Spoken, last_turn};
use crate::upstream::{framings, read_to_end};

/// The last of what a client reads is an error of its dialect, and all before is JSON.
fn check(spoken: Spoken, text: &str, what: &str) {
    let mut events = spoken.events(text);
    if spoken.dialect == CHAT.dialect {
        assert_eq!(events.pop().unwrap(), "[DONE]", "{what}");
    }
    let last = events.pop().unwrap();
    let error = match spoken.dialect {
        "openai_responses" => {
            assert_eq!(last["type"], "response.failed", "{what}");
            assert_eq!(last["response"]["status"], "failed", "{what}");
            &last["response"]["error"]
        }
        _ => &last["error"],
    };
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.contains("backend `a`"), "{what}: {last}");
}

#[tokio::test]
async fn an_end_before_the_last_event_is_an_error_wherever_it_falls() {
    for spoken in ALL {
        let stream = spoken.stream;
        let last = stream.rfind("data: ").unwrap();
        let (upstream, gateway) = spoken.over("", "").await;
        let ends = match spoken.dialect {
            // There the last event is the end, and no other is.
            "openai_responses" => last,
            // The reason why it ends is all there is of an end.
            _ => stream.find("finish").unwrap(),
        };
        let mut cuts = vec![0, 2, 6, 40, ends - 1];
        let character = stream.find('\u{1F914}').unwrap();
        cuts.extend([character, character + 1, character + 3]);
        let second = stream.match_indices("data: ").nth(1).unwrap().0;
        cuts.extend([second - 1, second, second + 3, second + 4, second + 5, second + 6]);
        for cut in cuts.into_iter().filter(|cut| *cut < ends) {
            let what = format!("{} cut at {cut}", spoken.dialect);
            let (mut streamed, mut exchange) = spoken.open(&upstream, &gateway).await;
            exchange.write(&stream.as_bytes()[..cut]).await;
            exchange.close().await;
            let mut bytes = Vec::new();
            while let Some(piece) = streamed.next().await {
                bytes.extend_from_slice(&piece);
            }
            assert!(bytes.starts_with(&stream.as_bytes()[..cut]), "{what}");
            let text = String::from_utf8(bytes).expect("whole characters");
            check(spoken, &text, &what);
            let turn = last_turn(&gateway).await;
            assert_eq!(turn["end"], "cut", "{what}");
        }
    }
}

#[tokio::test]
async fn an_end_without_the_last_word_is_good_where_the_reason_was_told() {
    for (spoken, end) in
        [(CHAT, CHAT.stream.find("data: [DONE]").unwrap()), (GEMINI, GEMINI.stream.len())]
    {
        let (upstream, gateway) = spoken.over("", "").await;
        let at = (&upstream, &gateway);
        let reply = &spoken.stream[..end];
        let (_, answer) = spoken.stream(at, spoken.request, reply).await;
        assert_eq!(answer.text(), reply);
        assert_eq!(last_turn(&gateway).await["end"], "completed");
    }
}

#[tokio::test]
async fn silence_that_is_too_long_is_told_in_the_dialect() {
    for spoken in ALL {
        let (upstream, gateway) = spoken.over("", "timeouts = { idle = \"200ms\" }").await;
        let (mut streamed, mut exchange) = spoken.open(&upstream, &gateway).await;
        let second = spoken.stream.match_indices("data: ").nth(1).unwrap().0;
        exchange.write(&spoken.stream[..second + 30]).await;
        let mut bytes = Vec::new();
        while let Some(piece) = streamed.next().await {
            bytes.extend_from_slice(&piece);
        }
        check(spoken, &String::from_utf8(bytes).unwrap(), spoken.dialect);
        let turn = last_turn(&gateway).await;
        assert!(turn["error"].as_str().unwrap().contains("sent nothing"));
    }
}

#[tokio::test]
async fn an_error_the_provider_tells_itself_is_told_once() {
    for spoken in ALL {
        let (upstream, gateway) = spoken.over("", "").await;
        let first = spoken.stream.find("\n\n").or(spoken.stream.find("\r\n\r\n")).unwrap();
        let mut reply = spoken.stream[..first].to_owned();
        reply.push_str(match spoken.dialect {
            "openai_responses" => {
                "\n\nevent: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"own\"}}}\n\n"
            }
            "gemini" => "\r\n\r\ndata: {\"error\":{\"code\":503,\"message\":\"own\",\"status\":\"UNAVAILABLE\"}}\r\n\r\n",
            _ => "\n\ndata: {\"error\":{\"message\":\"own\",\"code\":502}}\n\n",
        });
        let at = (&upstream, &gateway);
        let (_, answer) = spoken.stream(at, spoken.request, &reply).await;
        assert_eq!(answer.text(), reply, "{}", spoken.dialect);
        let turn = last_turn(&gateway).await;
        assert_eq!((&turn["end"], &turn["error"]), (&Value::from("failed"), &"own".into()));
    }
}

/// There is no place for an error in JSON: the connection says it, however the body was framed.
#[tokio::test]
async fn a_whole_reply_that_ends_early_breaks_the_connection() {
    for spoken in ALL {
        for mapped in [false, true] {
            let more = match mapped {
                true => "models = { \"*\" = \"other\" }",
                false => "",
            };
            let (upstream, gateway) = spoken.over("", more).await;
            let body = spoken.whole.as_bytes();
            for cut in [0, 1, body.len() / 2, body.len() - 1] {
                let half = &body[..cut];
                for (framing, answer) in framings(half, body.len()) {
                    let what = format!("{} {framing} {cut} mapped {mapped}", spoken.dialect);
                    let request = spoken.begin().to_string();
                    let client = &gateway.client;
                    let opened = client.open(Method::POST, spoken.whole_path, &[JSON], request);
                    let (mut streamed, ()) = tokio::join!(opened, async {
                        upstream.next().await.answer(&answer).await;
                    });
                    let (bytes, broken) = read_to_end(&mut streamed).await;
                    // Where the head tells that nothing follows, there still is a status to say so.
                    if (cut, framing) == (0, "own length") {
                        assert_eq!((streamed.status, broken), (502, false), "{what}");
                        let said = String::from_utf8(bytes).unwrap();
                        assert!(said.contains("empty body"), "{what}: {said}");
                        continue;
                    }
                    assert!(broken, "{what}");
                    assert!(half.starts_with(&bytes), "{what}");
                    let lost = half.len() - bytes.len();
                    // Of a body that promised to be no longer, the last byte stays behind.
                    assert!(mapped || lost <= 1, "{what}: {lost} bytes lost");
                    let turn = last_turn(&gateway).await;
                    assert_eq!(turn["end"], "cut", "{what}");
                }
            }
        }
    }
}
