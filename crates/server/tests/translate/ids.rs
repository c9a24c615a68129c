//! Ids of tool calls: each is unique, and each result finds its call.

use std::collections::HashSet;

use crate::support::{CLIENTS, Mismatches, TestBed, new_client};
use crate::test_client::{list, send_turn, text};

const SCENARIO: &str = r#"
[[step]]
when = { contains = "enough" }
say = [{ text = "Then I am done." }]
[[step]]
when = { contains = "o" }
say = [
  { thinking = "Two more." },
  { tool = { name = "lookup", input = { key = "7" } } }, { tool = { name = "lookup", input = { key = "8" } } },
]
"#;

#[tokio::test]
async fn repeated_call_ids_become_unique_within_a_conversation() {
    let mut mismatches = Mismatches::default();
    let bed = TestBed::of_model("some-repeat-ids", SCENARIO, "variant = \"vllm\"").await;
    for dialect in CLIENTS {
        for stream in [true, false] {
            let case = format!("{dialect}, {stream}");
            let mut test_client = new_client(dialect);
            test_client.push_user("go on");
            let mut ids = Vec::new();
            for result in ["row one", "row two", "enough"] {
                let sent = &bed.gateway.client;
                let (view, _) = send_turn(test_client.as_mut(), sent, "some-model", stream).await;
                mismatches.check_equal(&case, view.calls.len(), 2);
                ids.extend(view.calls.iter().map(|call| call.id.clone()));
                test_client.push_results(&view.calls, result);
            }
            let (view, _) =
                send_turn(test_client.as_mut(), &bed.gateway.client, "some-model", stream).await;
            mismatches.check_equal(&case, view.text.as_str(), "Then I am done.");
            let unique: HashSet<&String> = ids.iter().collect();
            mismatches.check_equal(&case, unique.len(), 6);
            // The upstream sees each call under the id of its result, in order.
            let body = bed.last_received(0).await.json();
            let calls: Vec<&str> = list(&body["messages"])
                .flat_map(|message| list(&message["tool_calls"]))
                .map(|call| text(&call["id"]))
                .collect();
            let results: Vec<&str> = list(&body["messages"])
                .filter(|message| message["role"] == "tool")
                .map(|message| text(&message["tool_call_id"]))
                .collect();
            mismatches.check_equal(&case, &calls, &ids);
            mismatches.check_equal(&case, &results, &ids);
        }
    }
    bed.expect_no_refusals().await;
    mismatches.assert_none();
}
