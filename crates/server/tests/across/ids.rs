//! The ids of tool calls: none comes twice, and each finds its call again.

use std::collections::HashSet;

use crate::speaker::{go_on, list, text};
use crate::support::{CLIENTS, House, Wrong, client};

const SAYS: &str = r#"
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
async fn ids_that_a_backend_repeats_are_unique_over_a_conversation() {
    let mut wrong = Wrong::default();
    let house = House::of_model("some-repeat-ids", SAYS, "variant = \"vllm\"").await;
    for dialect in CLIENTS {
        for stream in [true, false] {
            let what = format!("{dialect}, {stream}");
            let mut speaker = client(dialect);
            speaker.user("go on");
            let mut ids = Vec::new();
            for result in ["row one", "row two", "enough"] {
                let sent = &house.gateway.client;
                let (said, _) = go_on(speaker.as_mut(), sent, "some-model", stream).await;
                wrong.unless_equal(&what, said.calls.len(), 2);
                ids.extend(said.calls.iter().map(|call| call.id.clone()));
                speaker.results(&said.calls, result);
            }
            let (said, _) =
                go_on(speaker.as_mut(), &house.gateway.client, "some-model", stream).await;
            wrong.unless_equal(&what, said.text.as_str(), "Then I am done.");
            let unique: HashSet<&String> = ids.iter().collect();
            wrong.unless_equal(&what, unique.len(), 6);
            // The upstream sees every call under the id of its result, in order.
            let body = house.last(0).await.json();
            let calls: Vec<&str> = list(&body["messages"])
                .flat_map(|message| list(&message["tool_calls"]))
                .map(|call| text(&call["id"]))
                .collect();
            let results: Vec<&str> = list(&body["messages"])
                .filter(|message| message["role"] == "tool")
                .map(|message| text(&message["tool_call_id"]))
                .collect();
            wrong.unless_equal(&what, &calls, &ids);
            wrong.unless_equal(&what, &results, &ids);
        }
    }
    house.end_in_peace().await;
    wrong.end();
}
