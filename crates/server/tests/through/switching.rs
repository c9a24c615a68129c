//! Two backends of one dialect that do not read each other: each gets its own thinking back, and none
//! of the other's.

use serde_json::json;
use throughline_testkit::Gateway;

use crate::support::{ALL, BINARY, GEMINI, Spoken, ask, fates, last_turn};
use crate::upstream::Upstream;

async fn pair(spoken: &Spoken, settings: &str) -> (Upstream, Upstream, Gateway) {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let config =
        format!("{settings}{}{}", spoken.backend("a", &a.url, ""), spoken.backend("b", &b.url, ""));
    (a, b, Gateway::start(BINARY, &config).await)
}

#[tokio::test]
async fn thinking_goes_back_to_its_maker_and_to_nobody_else() {
    for spoken in ALL {
        let (a, b, gateway) = pair(&spoken, "").await;
        let begun = spoken.begin();
        let (_, reply) = ask(&spoken, &gateway, ("a", &a), &begun, spoken.whole).await;
        let request = spoken.go_on(begun, &reply);
        let (body, _) = ask(&spoken, &gateway, ("a", &a), &request, spoken.whole).await;
        assert_eq!(body, request.to_string(), "its own, to the byte");
        let sent = fates(&last_turn(&gateway).await);
        assert!(!sent.is_empty() && sent.iter().all(|fate| fate == "sent"), "{sent:?}");
        let (body, answer) = ask(&spoken, &gateway, ("b", &b), &request, &spoken.another()).await;
        assert!(!body.contains("Z2VudWluZQ==") && !body.contains("Hm."), "{body}");
        assert!(body.contains("Yes."), "{body}");
        let count = sent.len();
        assert_eq!(
            answer.header("x-throughline-loss"),
            format!("thinking_omitted={count};reason=origin")
        );
        // What was left out for one is still there for the other.
        let (body, _) = ask(&spoken, &gateway, ("a", &a), &request, spoken.whole).await;
        assert_eq!(body, request.to_string());
    }
}

#[tokio::test]
async fn thinking_is_remembered_over_a_restart_and_from_a_stream() {
    for spoken in ALL {
        let (a, b, mut gateway) = pair(&spoken, "").await;
        let begun = spoken.begin();
        // What the client makes of a stream is what a whole reply says.
        let (mut streamed, exchange) = {
            let (streamed, mut exchange) = spoken.open(&a, &gateway).await;
            exchange.write(spoken.stream).await;
            (streamed, exchange)
        };
        exchange.close().await;
        while streamed.next().await.is_some() {}
        gateway.signal("TERM").await;
        gateway.ended().await;
        gateway.start_again().await;
        let request = spoken.go_on(begun, &spoken.unseen());
        let (body, _) = ask(&spoken, &gateway, ("b", &b), &request, &spoken.another()).await;
        assert!(!body.contains("Z2VudWluZQ=="), "{}: {body}", spoken.dialect);
    }
}

#[tokio::test]
async fn a_foreign_call_is_marked_as_such_where_the_model_wants_signatures() {
    let (a, b, gateway) = pair(&GEMINI, "").await;
    let begun = GEMINI.begin();
    let (_, reply) = ask(&GEMINI, &gateway, ("a", &a), &begun, GEMINI.whole).await;
    let mut request = GEMINI.go_on(begun, &reply);
    // A second call of the same step bears none, and gets none.
    let parts = request["contents"][1]["parts"].as_array_mut().unwrap();
    parts.push(json!({"functionCall": {"name": "look", "args": {}}}));
    let (body, _) = ask(&GEMINI, &gateway, ("b", &b), &request, &GEMINI.another()).await;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    let parts = body["contents"][1]["parts"].as_array().unwrap();
    let skip = "skip_thought_signature_validator";
    assert_eq!(parts[0]["thoughtSignature"], skip, "{body}");
    assert_eq!(parts[2].get("thoughtSignature"), None, "{body}");
    // Words of the user end the turn: nobody asks for the signatures of an earlier one.
    let contents = request["contents"].as_array_mut().unwrap();
    contents.push(json!({"role": "user", "parts": [{"text": "And?"}]}));
    let (body, _) = ask(&GEMINI, &gateway, ("b", &b), &request, &GEMINI.another()).await;
    assert!(!body.contains("thoughtSignature"), "{body}");
}

#[tokio::test]
async fn what_nobody_knows_is_tried_or_dropped_as_configured() {
    for spoken in ALL {
        for (setting, kept, fate) in
            [("try", true, "tried unknown"), ("drop", false, "left_out unknown")]
        {
            let settings = format!("[thinking]\nunknown = \"{setting}\"\n");
            let (a, _b, gateway) = pair(&spoken, &settings).await;
            let request = spoken.go_on(spoken.begin(), &spoken.unseen());
            let (body, _) = ask(&spoken, &gateway, ("a", &a), &request, &spoken.another()).await;
            assert_eq!(body.contains("Z2VudWluZQ=="), kept, "{body}");
            let told = fates(&last_turn(&gateway).await);
            assert!(told.iter().all(|told| told == fate), "{told:?}");
            if kept {
                // It was taken, so it is known now.
                ask(&spoken, &gateway, ("a", &a), &request, &spoken.another()).await;
                let told = fates(&last_turn(&gateway).await);
                assert!(told.iter().all(|told| told == "sent"), "{told:?}");
            }
        }
    }
}
