//! The preview of a stored conversation's next request.

use throughline_canonical::Block;

use crate::support::{Conversation, Instance, KEY, incoming};
use crate::{ALL, accepted};

#[tokio::test]
async fn preview_equals_the_request_that_is_sent_and_changes_nothing() {
    for upstream in ALL {
        let simulator = upstream.start("one").await;
        let house = Instance::start(&[("a", &upstream, &simulator.url)]);
        let mut conversation = Conversation::new(&upstream);
        conversation.ask(&house, "a", "one tool please").await;
        conversation.add_question("7 is row blue");
        simulator.clear_received().await;
        let known = house.statistics();
        let turns = house.gateway.turns.list(10, None).len();

        let preview = |accepted| house.gateway.preview(incoming("a"), accepted);
        let first = preview(conversation.accepted(&house)).await.expect("a preview");
        let second = preview(conversation.accepted(&house)).await.expect("a preview");
        assert_eq!(first.body.get(), second.body.get(), "{}", upstream.dialect);
        assert_eq!(house.statistics(), known, "{}", upstream.dialect);
        assert_eq!(house.gateway.turns.list(10, None).len(), turns);
        assert!(simulator.received().await.is_empty(), "{}", upstream.dialect);
        let shown = serde_json::to_string(&first).expect("JSON");
        assert!(!shown.contains(KEY), "{shown}");

        let (_, reply) = conversation.send(&house, "a").await.fold().await;
        let calls = |block: &Block| matches!(block, Block::ToolCall { .. });
        assert!(reply.expect("a reply").content.iter().any(calls));
        let sent = accepted(&simulator).await;
        assert_eq!(first.body.get(), sent.body, "{}", upstream.dialect);
        let address = (first.path, first.query.unwrap_or_default());
        assert_eq!(
            (first.method, address),
            (sent.method.clone(), (sent.path.clone(), sent.query.clone()))
        );
        for (name, value) in &first.headers {
            assert_eq!(sent.header(name), Some(value.as_str()), "{name}");
        }
        assert_eq!(first.report["backend"], "a");
        let fates = first.report["blocks"].as_array().expect("blocks").len();
        assert_eq!(fates, house.last_fates().len(), "{}", first.report);
    }
}

#[tokio::test]
async fn report_takes_a_canonical_request() {
    let upstream = crate::ANTHROPIC;
    let simulator = upstream.start("one").await;
    let house = Instance::start(&[("a", &upstream, &simulator.url)]);
    let mut conversation = Conversation::new(&upstream);
    conversation.ask(&house, "a", "ponder").await;
    conversation.add_question("plain");
    let accepted = conversation.accepted(&house);
    let report = house.gateway.report(incoming("a"), accepted).await.expect("a report");
    assert_eq!(report["lane"], "across");
    assert_eq!(report["blocks"][0]["fate"], "sent", "{report}");
}
