//! Envelopes: what was made elsewhere rides with the client, and never reaches a provider as it rides.

use throughline_testkit::Gateway;

use crate::support::{ALL, BINARY, ELSEWHERE, Spoken, ask, fates, last_turn};
use crate::upstream::Upstream;

/// A backend `a` of a dialect, and `b` of Anthropic's, whose signatures `a` reads or does not.
async fn pair(spoken: &Spoken, shared: bool) -> (Upstream, Upstream, Gateway) {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let domain = if shared { "signature_domain = \"one\"" } else { "" };
    let config = format!(
        "{}\n[[backend]]\nname = \"b\"\ndialect = \"anthropic\"\nbase_url = \"{}\"\n{domain}\n",
        spoken.backend("a", &a.url, domain),
        b.url
    );
    (a, b, Gateway::start(BINARY, &config).await)
}

/// What every envelope begins with.
const ENVELOPE: &str = "TLine1";

/// Covers: C-2
#[tokio::test]
async fn a_foreign_envelope_never_reaches_the_upstream() {
    for spoken in ALL {
        let (a, b, gateway) = pair(&spoken, false).await;
        let begun = spoken.begin();
        let (_, reply) = ask(&spoken, &gateway, ("b", &b), &begun, ELSEWHERE).await;
        assert!(reply.text().contains(ENVELOPE), "{}", reply.text());
        let request = spoken.go_on(begun, &reply);
        let (body, answer) = ask(&spoken, &gateway, ("a", &a), &request, spoken.whole).await;
        assert!(!body.contains(ENVELOPE), "{body}");
        assert!(!body.contains("Elsewhere."), "{body}");
        assert!(body.contains("I look.") && body.contains("look"), "{body}");
        serde_json::from_str::<serde_json::Value>(&body).unwrap();
        assert_eq!(answer.header("x-throughline-loss"), "thinking_omitted=1;reason=origin");
        let turn = last_turn(&gateway).await;
        assert_eq!(turn["lane"], "through");
        assert_eq!(fates(&turn), ["left_out origin"]);
        assert_eq!(turn["blocks"][0]["origin"]["backend"], "b");
    }
}

#[tokio::test]
async fn an_envelope_of_the_targets_domain_becomes_the_makers_signature() {
    for spoken in ALL {
        let (a, b, gateway) = pair(&spoken, true).await;
        let begun = spoken.begin();
        let (_, reply) = ask(&spoken, &gateway, ("b", &b), &begun, ELSEWHERE).await;
        let request = spoken.go_on(begun, &reply);
        let (body, answer) = ask(&spoken, &gateway, ("a", &a), &request, spoken.whole).await;
        assert!(!body.contains(ENVELOPE), "{body}");
        assert!(body.contains("\"ZWxzZXdoZXJl\"") && body.contains("Elsewhere."), "{body}");
        assert_eq!(answer.header("x-throughline-loss"), "");
        assert_eq!(fates(&last_turn(&gateway).await), ["sent"]);
        // But for the signature, it is what the client sent.
        let sent = request.to_string();
        let start = sent.find(ENVELOPE).unwrap();
        let end = start + sent[start..].find('"').unwrap();
        let native = format!("{}ZWxzZXdoZXJl{}", &sent[..start], &sent[end..]);
        if spoken.dialect != "gemini" {
            assert_eq!(body, native);
        }
    }
}

#[tokio::test]
async fn an_altered_envelope_goes_to_nobody() {
    for spoken in ALL {
        let (a, b, gateway) = pair(&spoken, true).await;
        let begun = spoken.begin();
        let (_, reply) = ask(&spoken, &gateway, ("b", &b), &begun, ELSEWHERE).await;
        let request = spoken.go_on(begun, &reply).to_string();
        let at = request.find(ENVELOPE).unwrap() + 20;
        let letter = if &request[at..=at] == "A" { "B" } else { "A" };
        let altered = format!("{}{letter}{}", &request[..at], &request[at + 1..]);
        let altered = serde_json::from_str(&altered).unwrap();
        let (body, _) = ask(&spoken, &gateway, ("a", &a), &altered, spoken.whole).await;
        assert!(!body.contains(ENVELOPE), "{body}");
        assert_eq!(fates(&last_turn(&gateway).await), ["left_out origin"]);
    }
}

/// The report without sending says the same.
#[tokio::test]
async fn a_plan_tells_what_would_go() {
    for spoken in ALL {
        let (_a, b, gateway) = pair(&spoken, false).await;
        let begun = spoken.begin();
        let (_, reply) = ask(&spoken, &gateway, ("b", &b), &begun, ELSEWHERE).await;
        let request = spoken.go_on(begun, &reply);
        let model = "model=gemini-3-pro";
        let path = format!("/v1/plan?dialect={}&backend=a&{model}", spoken.dialect);
        let plan = gateway.client.post(&path, &[], &request).await.good().json();
        assert_eq!(plan["lane"], "through", "{plan}");
        assert_eq!(fates(&plan), ["left_out origin"], "{plan}");
        assert_eq!(plan["losses"].as_array().unwrap().len(), 1);
    }
}
