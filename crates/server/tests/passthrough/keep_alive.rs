//! Keep-alives in a passthrough stream: between events, in the form of the dialect, and nowhere
//! else.

use crate::support::{RESPONSES, SAMPLES};

const FREQUENT_KEEP_ALIVE: &str = "keep_alive = \"50ms\"\n";

#[tokio::test]
async fn keep_alives_are_written_between_events_only() {
    for sample in SAMPLES {
        let (upstream, gateway) = sample.over(FREQUENT_KEEP_ALIVE, "").await;
        let (mut streamed, mut exchange) = sample.open(&upstream, &gateway).await;
        // Stop between two events, then inside the next event, then write the rest.
        let offset = |number| sample.stream.match_indices("data: ").nth(number).unwrap().0;
        let third = match sample.dialect {
            "openai_responses" => sample.stream[..offset(3)].rfind("event: ").unwrap(),
            _ => offset(2),
        };
        exchange.write(&sample.stream[..third]).await;
        let mut bytes = Vec::new();
        while !bytes.ends_with(format!("{0}{0}", sample.keep_alive).as_bytes()) {
            bytes.extend_from_slice(&streamed.next().await.unwrap());
            assert!(bytes.len() < 100_000, "{}", sample.dialect);
        }
        exchange.write(&sample.stream[third..third + 9]).await;
        // The idle timeout shows that time has passed, and there is no keep-alive inside an event.
        tokio::time::sleep(std::time::Duration::from_millis(160)).await;
        exchange.write(&sample.stream[third + 9..]).await;
        exchange.close().await;
        while let Some(piece) = streamed.next().await {
            bytes.extend_from_slice(&piece);
        }
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.replace(sample.keep_alive, ""), sample.stream, "{}", sample.dialect);
    }
}

#[tokio::test]
async fn responses_stream_never_begins_with_a_keep_alive() {
    let (upstream, gateway) = RESPONSES.over(FREQUENT_KEEP_ALIVE, "").await;
    let (mut streamed, mut exchange) = RESPONSES.open(&upstream, &gateway).await;
    tokio::time::sleep(std::time::Duration::from_millis(160)).await;
    exchange.write(RESPONSES.stream).await;
    exchange.close().await;
    let first = streamed.next().await.unwrap();
    assert!(first.starts_with(b"event: response.created"));
}
