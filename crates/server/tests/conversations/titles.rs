//! Titles that the model writes after the first answer of a project without one.

use serde_json::{Value, json};
use throughline_testkit::wait_until;

use crate::sealed::{CHAT_KEY, id_of, key, open, seal_project};
use crate::support::{ANTHROPIC, Api, GEMINI, done, text};

const SCENARIO: &str = r#"
[[step]]
when = { contains = "Write a title" }
say = [{ text = "\"Herons on one leg.\"" }]
"#;

/// How many titles were asked for, and how many requests were made.
async fn requests(api: &Api) -> (usize, usize) {
    let mut counts = (0, 0);
    for simulator in &api.simulators {
        for received in simulator.received().await {
            counts.1 += 1;
            counts.0 += usize::from(received.body.contains("Write a title"));
        }
    }
    counts
}

async fn wait_for_title(api: &Api, project: &str) {
    wait_until("the project has a title", async || {
        let shown = api.get(project).await;
        !matches!(text(&shown["title"]), "")
    })
    .await;
}

#[tokio::test]
async fn model_writes_the_title_after_the_first_answer() {
    let api = Api::with(&[ANTHROPIC, GEMINI], SCENARIO, "").await;
    for (provider, _) in [ANTHROPIC, GEMINI] {
        let project = api.project(json!({"provider": provider})).await;
        assert_eq!(api.get(&project).await["title"], "");
        api.say(&project, "main", "Why one leg?").await;
        wait_for_title(&api, &project).await;
        assert_eq!(api.get(&project).await["title"], "Herons on one leg");
        assert_eq!(api.nodes(&project, "main").await.len(), 2, "the title is no message");
        api.say(&project, "main", "And two?").await;
    }
    assert_eq!(requests(&api).await, (2, 6), "one title for each project");
    // The request counts as any other.
    let turns = api.gateway.turns().await;
    assert_eq!(turns.len(), 6);
    assert!(turns.iter().all(|turn| turn["usage"]["output"].as_u64() > Some(0)), "{turns:#?}");
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn given_title_stays_and_none_is_asked_for() {
    let api = Api::with(&[ANTHROPIC], SCENARIO, "").await;
    let project = api.project(json!({"title": "Mine"})).await;
    let other = api.project(json!({})).await;
    api.say(&project, "main", "Why one leg?").await;
    api.say(&other, "main", "Why one leg?").await;
    wait_for_title(&api, &other).await;
    assert_eq!(api.get(&project).await["title"], "Mine");
    assert_eq!(requests(&api).await, (1, 3));
}

#[tokio::test]
async fn titles_can_be_switched_off() {
    let api = Api::with(&[ANTHROPIC], SCENARIO, "[projects]\ntitles = false\n").await;
    let project = api.project(json!({})).await;
    for _ in 0..3 {
        done(&api.say(&project, "main", "Why one leg?").await);
    }
    assert_eq!(requests(&api).await, (0, 3));
    assert_eq!(api.get(&project).await["title"], "");
}

#[tokio::test]
async fn refused_title_leaves_the_answer_and_is_asked_for_again() {
    let refused =
        "[[step]]\ntimes = 1\nwhen = { contains = \"Write a title\" }\nfault = \"status:400\"\n";
    let api = Api::with(&[ANTHROPIC], &[refused, SCENARIO].concat(), "").await;
    let project = api.project(json!({})).await;
    let lines = api.say(&project, "main", "Why one leg?").await;
    assert_eq!(done(&lines)["reason"], "completed");
    wait_until("a title was asked for", async || requests(&api).await.0 == 1).await;
    assert_eq!(api.get(&project).await["title"], "");
    api.say(&project, "main", "And two?").await;
    wait_for_title(&api, &project).await;
    assert_eq!(requests(&api).await, (2, 4));
}

/// Covers: C-15
#[tokio::test]
async fn title_of_a_sealed_project_is_sealed() {
    let mut api = Api::with(&[ANTHROPIC], SCENARIO, "").await;
    let project = seal_project(&mut api, "").await;
    api.say(&project, "main", "Why one leg?").await;
    wait_for_title(&api, &project).await;
    api.present(&[]);
    let shown = api.get(&project).await;
    assert_eq!(shown["title"], Value::Null);
    assert_eq!(open(&shown["encrypted_title"], id_of(&project), "", "title"), "Herons on one leg");
    api.present(&[(CHAT_KEY, &key(1).write())]);
    assert_eq!(api.get(&project).await["title"], "Herons on one leg");
}
