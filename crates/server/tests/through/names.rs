//! A model that has another name at the backend: there it has that one, here the client's.

use crate::support::{ALL, CHAT, GEMINI, RESPONSES, last_turn, text};

const MAPPED: &str = "models = { \"gpt-*\" = \"big/one\", \"gemini-*\" = \"big/one\" }";

#[tokio::test]
async fn a_mapped_model_is_named_there_and_named_back_in_every_event() {
    for spoken in ALL {
        let (upstream, gateway) = spoken.over("", MAPPED).await;
        let at = (&upstream, &gateway);
        let asked = if spoken.dialect == GEMINI.dialect { "gemini-3-pro" } else { "gpt-5" };
        let theirs = |reply: &str| reply.replace(asked, "big/one");
        for stream in [true, false] {
            let (exchange, answer) = match stream {
                true => spoken.stream(at, spoken.request, &theirs(spoken.stream)).await,
                false => spoken.whole(at, spoken.request, &theirs(spoken.whole)).await,
            };
            let reply = if stream { spoken.stream } else { spoken.whole };
            assert_eq!(answer.text(), reply, "{}", spoken.dialect);
            // In the path of one dialect, in the body of the others; nothing else changes.
            assert_eq!(
                (exchange.target.clone(), text(&exchange)),
                match spoken.dialect {
                    "gemini" if stream => (
                        "/v1beta/models/big/one:streamGenerateContent?alt=sse".to_owned(),
                        spoken.request.to_owned()
                    ),
                    "gemini" => (
                        "/v1beta/models/big/one:generateContent".to_owned(),
                        spoken.request.to_owned()
                    ),
                    _ => (spoken.stream_path.to_owned(), theirs(spoken.request)),
                }
            );
            let turn = last_turn(&gateway).await;
            assert_eq!(turn["model"], asked);
            assert_eq!(turn["upstream_model"], "big/one");
        }
    }
}

#[tokio::test]
async fn a_name_the_backend_made_up_itself_stays() {
    for spoken in ALL {
        let (upstream, gateway) = spoken.over("", MAPPED).await;
        let reply =
            spoken.stream.replace("gpt-5", "big/one-0301").replace("gemini-3-pro", "big/one-0301");
        let at = (&upstream, &gateway);
        let (_, answer) = spoken.stream(at, spoken.request, &reply).await;
        assert_eq!(answer.text(), reply, "{}", spoken.dialect);
    }
}

#[tokio::test]
async fn a_request_without_a_model_gets_the_backends() {
    for spoken in [RESPONSES, CHAT] {
        let (upstream, gateway) = spoken.over("", "default_model = \"usual\"").await;
        let at = (&upstream, &gateway);
        let bare = r#"{"input":"hi","messages":[{"role":"user","content":"hi"}] }"#;
        let (exchange, _) = spoken.whole(at, bare, spoken.whole).await;
        assert_eq!(
            text(&exchange),
            bare.replace("] }", "],\"model\":\"usual\" }"),
            "{}",
            spoken.dialect
        );
    }
}
