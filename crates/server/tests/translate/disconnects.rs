//! Clients that disconnect: the upstream request ends at once, and the turn records it.

use http::Method;
use throughline_testkit::{Gateway, RawUpstream, wait_until};

use crate::support::{BINARY, foreign_clients, new_client, upstream};

/// The first events of a stream in each upstream dialect.
const FIRST_EVENTS: [(&str, &str); 4] = [
    (
        "anthropic, budget",
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\
         \"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n\
         event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
         event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Ah\"}}\n\n",
    ),
    (
        "gemini 3",
        "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"Ah\"}]}}]}\n\n",
    ),
    (
        "openai_responses",
        "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"status\":\"in_progress\",\"output\":[]}}\n\n\
         event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"sequence_number\":1,\"output_index\":0,\"item\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"status\":\"in_progress\",\"content\":[]}}\n\n\
         event: response.content_part.added\ndata: {\"type\":\"response.content_part.added\",\"sequence_number\":2,\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"part\":{\"type\":\"output_text\",\"text\":\"\",\"annotations\":[]}}\n\n\
         event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":3,\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\"Ah\"}\n\n",
    ),
    (
        "vllm",
        "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Ah\"},\"finish_reason\":null}]}\n\n",
    ),
];

#[tokio::test]
async fn disconnected_client_ends_the_upstream_request() {
    for (row, beginning) in FIRST_EVENTS {
        let bare = RawUpstream::start().await;
        // Front ends may come back. Only without a log does their reply end with the connection.
        let backend = upstream(row).backend("a", &bare.url);
        let config = format!("[runs]\nlog = false\n{backend}");
        let gateway = Gateway::start(BINARY, &config).await;
        for dialect in foreign_clients(row) {
            // Before the head of the reply, and after its first words.
            for started in [false, true] {
                let mut test_client = new_client(dialect);
                test_client.push_user("hello");
                let request = test_client.next_request("some-model", true);
                let mut headers = vec![("content-type", "application/json")];
                headers.extend(&request.headers);
                let opened = gateway.client.open(
                    Method::POST,
                    &request.path,
                    &headers,
                    request.body.to_string(),
                );
                let exchange = if started {
                    let (mut streamed, exchange) = tokio::join!(opened, async {
                        let mut exchange = bare.next().await;
                        exchange.begin_events().await;
                        exchange.write(beginning).await;
                        exchange
                    });
                    let mut received = String::new();
                    while !received.contains("Ah") {
                        let piece = streamed.next().await.expect("words");
                        received.push_str(&String::from_utf8_lossy(&piece));
                    }
                    exchange
                } else {
                    tokio::select! {
                        _ = opened => panic!("an answer to nothing"),
                        exchange = bare.next() => exchange,
                    }
                };
                exchange.wait_until_closed().await;
                let case = format!("{dialect} over {row}, started: {started}");
                wait_until(&case, async || {
                    let turns = gateway.turns().await;
                    let status = if started { 200 } else { 0 };
                    turns.first().is_some_and(|turn| {
                        turn["end"] == "client_gone"
                            && turn["client_dialect"] == dialect
                            && turn["status"] == status
                    })
                })
                .await;
            }
        }
        let noted = gateway.turns().await.len();
        assert_eq!(noted, 6, "{row}");
    }
}
