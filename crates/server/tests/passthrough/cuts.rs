//! Replies that end early: the client gets an error in its dialect, also after half an event.

use serde_json::Value;
use throughline_testkit::check_cut_reply;

use crate::support::{CHAT, DialectSample, GEMINI, SAMPLES};

/// Checks that the stream ends in an error of its dialect, and that every event before it is JSON.
fn check_ends_in_error(sample: DialectSample, text: &str, case: &str) {
    let mut events = sample.events(text);
    if sample.dialect == CHAT.dialect {
        assert_eq!(events.pop().unwrap(), "[DONE]", "{case}");
    }
    let last = events.pop().unwrap();
    let error = match sample.dialect {
        "openai_responses" => {
            assert_eq!(last["type"], "response.failed", "{case}");
            assert_eq!(last["response"]["status"], "failed", "{case}");
            &last["response"]["error"]
        }
        _ => &last["error"],
    };
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.contains("backend `a`"), "{case}: {last}");
}

#[tokio::test]
async fn stream_cut_before_its_last_event_ends_in_an_error() {
    for sample in SAMPLES {
        let stream = sample.stream;
        let last = stream.rfind("data: ").unwrap();
        let (upstream, gateway) = sample.over("", "").await;
        let ends = match sample.dialect {
            // In this dialect only the last event ends a reply.
            "openai_responses" => last,
            // In these dialects the finish reason ends a reply.
            _ => stream.find("finish").unwrap(),
        };
        let mut cuts = vec![0, 2, 6, 40, ends - 1];
        let character = stream.find('\u{1F914}').unwrap();
        cuts.extend([character, character + 1, character + 3]);
        let second = stream.match_indices("data: ").nth(1).unwrap().0;
        cuts.extend([second - 1, second, second + 3, second + 4, second + 5, second + 6]);
        for cut in cuts.into_iter().filter(|cut| *cut < ends) {
            let case = format!("{} cut at {cut}", sample.dialect);
            let (mut streamed, mut exchange) = sample.open(&upstream, &gateway).await;
            exchange.write(&stream.as_bytes()[..cut]).await;
            exchange.close().await;
            let mut bytes = Vec::new();
            while let Some(piece) = streamed.next().await {
                bytes.extend_from_slice(&piece);
            }
            assert!(bytes.starts_with(&stream.as_bytes()[..cut]), "{case}");
            let text = String::from_utf8(bytes).expect("whole characters");
            check_ends_in_error(sample, &text, &case);
            let turn = gateway.last_turn().await;
            assert_eq!(turn["end"], "cut", "{case}");
        }
    }
}

#[tokio::test]
async fn stream_with_a_finish_reason_may_end_without_its_terminator() {
    for (sample, end) in
        [(CHAT, CHAT.stream.find("data: [DONE]").unwrap()), (GEMINI, GEMINI.stream.len())]
    {
        let (upstream, gateway) = sample.over("", "").await;
        let at = (&upstream, &gateway);
        let reply = &sample.stream[..end];
        let (_, answer) = sample.stream(at, sample.request, reply).await;
        assert_eq!(answer.text(), reply);
        assert_eq!(gateway.last_turn().await["end"], "completed");
    }
}

#[tokio::test]
async fn idle_timeout_ends_the_stream_with_an_error_of_its_dialect() {
    for sample in SAMPLES {
        let (upstream, gateway) = sample.over("", "timeouts = { idle = \"200ms\" }").await;
        let (mut streamed, mut exchange) = sample.open(&upstream, &gateway).await;
        let second = sample.stream.match_indices("data: ").nth(1).unwrap().0;
        exchange.write(&sample.stream[..second + 30]).await;
        let mut bytes = Vec::new();
        while let Some(piece) = streamed.next().await {
            bytes.extend_from_slice(&piece);
        }
        check_ends_in_error(sample, &String::from_utf8(bytes).unwrap(), sample.dialect);
        let turn = gateway.last_turn().await;
        assert!(turn["error"].as_str().unwrap().contains("sent nothing"));
    }
}

#[tokio::test]
async fn provider_error_event_is_not_repeated() {
    for sample in SAMPLES {
        let (upstream, gateway) = sample.over("", "").await;
        let first = sample.stream.find("\n\n").or(sample.stream.find("\r\n\r\n")).unwrap();
        let mut reply = sample.stream[..first].to_owned();
        reply.push_str(match sample.dialect {
            "openai_responses" => {
                "\n\nevent: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"own\"}}}\n\n"
            }
            "gemini" => "\r\n\r\ndata: {\"error\":{\"code\":503,\"message\":\"own\",\"status\":\"UNAVAILABLE\"}}\r\n\r\n",
            _ => "\n\ndata: {\"error\":{\"message\":\"own\",\"code\":502}}\n\n",
        });
        let at = (&upstream, &gateway);
        let (_, answer) = sample.stream(at, sample.request, &reply).await;
        assert_eq!(answer.text(), reply, "{}", sample.dialect);
        let turn = gateway.last_turn().await;
        assert_eq!((&turn["end"], &turn["error"]), (&Value::from("failed"), &"own".into()));
    }
}

/// A JSON body has no room for an error after its head. The connection breaks instead, for every
/// framing of the body.
#[tokio::test]
async fn cut_whole_reply_breaks_the_connection() {
    for sample in SAMPLES {
        for mapped in [false, true] {
            let more = match mapped {
                true => "models = { \"*\" = \"other\" }",
                false => "",
            };
            let (upstream, gateway) = sample.over("", more).await;
            let request = sample.first_request().to_string();
            let length = sample.whole.len();
            for cut in [0, 1, length / 2, length - 1] {
                check_cut_reply(
                    (&upstream, &gateway),
                    (sample.whole_path, &request),
                    (sample.whole, cut),
                    mapped,
                )
                .await;
            }
        }
    }
}
