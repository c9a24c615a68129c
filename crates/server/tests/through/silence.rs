//! Signs of life in a stream that passes: between events, in the dialect's form, and nowhere else.

use crate::support::{ALL, RESPONSES};

const OFTEN: &str = "keep_alive = \"50ms\"\n";

#[tokio::test]
async fn a_silent_upstream_gets_its_client_signs_of_life_between_events() {
    for spoken in ALL {
        let (upstream, gateway) = spoken.over(OFTEN, "").await;
        let (mut streamed, mut exchange) = spoken.open(&upstream, &gateway).await;
        // Between two events, in the middle of the next one, and then to the end.
        let place = |number| spoken.stream.match_indices("data: ").nth(number).unwrap().0;
        let third = match spoken.dialect {
            "openai_responses" => spoken.stream[..place(3)].rfind("event: ").unwrap(),
            _ => place(2),
        };
        exchange.write(&spoken.stream[..third]).await;
        let mut bytes = Vec::new();
        while !bytes.ends_with(format!("{0}{0}", spoken.sign).as_bytes()) {
            bytes.extend_from_slice(&streamed.next().await.unwrap());
            assert!(bytes.len() < 100_000, "{}", spoken.dialect);
        }
        exchange.write(&spoken.stream[third..third + 9]).await;
        // The idle clock shows that time passes, and no sign stands here.
        tokio::time::sleep(std::time::Duration::from_millis(160)).await;
        exchange.write(&spoken.stream[third + 9..]).await;
        exchange.close().await;
        while let Some(piece) = streamed.next().await {
            bytes.extend_from_slice(&piece);
        }
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.replace(spoken.sign, ""), spoken.stream, "{}", spoken.dialect);
    }
}

#[tokio::test]
async fn a_stream_of_responses_never_begins_with_a_sign_of_life() {
    let (upstream, gateway) = RESPONSES.over(OFTEN, "").await;
    let (mut streamed, mut exchange) = RESPONSES.open(&upstream, &gateway).await;
    tokio::time::sleep(std::time::Duration::from_millis(160)).await;
    exchange.write(RESPONSES.stream).await;
    exchange.close().await;
    let first = streamed.next().await.unwrap();
    assert!(first.starts_with(b"event: response.created"));
}
