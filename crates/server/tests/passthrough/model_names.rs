//! Mapped models: the backend sees its own model name, the client sees the name it sent.

use crate::support::{CHAT, GEMINI, RESPONSES, SAMPLES, body_text};

const MAPPED: &str = "models = { \"gpt-*\" = \"big/one\", \"gemini-*\" = \"big/one\" }";

#[tokio::test]
async fn mapped_model_name_is_reversed_in_every_event() {
    for sample in SAMPLES {
        let (upstream, gateway) = sample.over("", MAPPED).await;
        let at = (&upstream, &gateway);
        let client_model = if sample.dialect == GEMINI.dialect { "gemini-3-pro" } else { "gpt-5" };
        let with_mapped_name = |reply: &str| reply.replace(client_model, "big/one");
        for stream in [true, false] {
            let (exchange, answer) = match stream {
                true => sample.stream(at, sample.request, &with_mapped_name(sample.stream)).await,
                false => sample.whole(at, sample.request, &with_mapped_name(sample.whole)).await,
            };
            let reply = if stream { sample.stream } else { sample.whole };
            assert_eq!(answer.text(), reply, "{}", sample.dialect);
            // Gemini names the model in the path, the other dialects in the body. Nothing else
            // changes.
            assert_eq!(
                (exchange.target.clone(), body_text(&exchange)),
                match sample.dialect {
                    "gemini" if stream => (
                        "/v1beta/models/big/one:streamGenerateContent?alt=sse".to_owned(),
                        sample.request.to_owned()
                    ),
                    "gemini" => (
                        "/v1beta/models/big/one:generateContent".to_owned(),
                        sample.request.to_owned()
                    ),
                    _ => (sample.stream_path.to_owned(), with_mapped_name(sample.request)),
                }
            );
            let turn = gateway.last_turn().await;
            assert_eq!(turn["model"], client_model);
            assert_eq!(turn["upstream_model"], "big/one");
        }
    }
}

#[tokio::test]
async fn unmapped_name_in_a_reply_stays() {
    for sample in SAMPLES {
        let (upstream, gateway) = sample.over("", MAPPED).await;
        let reply =
            sample.stream.replace("gpt-5", "big/one-0301").replace("gemini-3-pro", "big/one-0301");
        let at = (&upstream, &gateway);
        let (_, answer) = sample.stream(at, sample.request, &reply).await;
        assert_eq!(answer.text(), reply, "{}", sample.dialect);
    }
}

#[tokio::test]
async fn request_without_a_model_gets_the_default_model() {
    for sample in [RESPONSES, CHAT] {
        let (upstream, gateway) = sample.over("", "default_model = \"usual\"").await;
        let at = (&upstream, &gateway);
        let bare = r#"{"input":"hi","messages":[{"role":"user","content":"hi"}] }"#;
        let (exchange, _) = sample.whole(at, bare, sample.whole).await;
        assert_eq!(
            body_text(&exchange),
            bare.replace("] }", "],\"model\":\"usual\" }"),
            "{}",
            sample.dialect
        );
    }
}
