//! Several writers on one branch at once: one wins, the others learn why, nothing is lost.

use serde_json::{Value, json};
use throughline_testkit::Answer;

use crate::support::{ANTHROPIC, Api, Random};

const ROUNDS: usize = 100;
const SCENARIO: &str = "[[step]]\nsay = [{ text = \"Just a text.\" }]\n";

async fn head(api: &Api, project: &str) -> Value {
    api.get(&format!("{project}/branches")).await["branches"][0]["head"].clone()
}

/// A request that changes the head of the branch.
async fn write(api: &Api, project: &str, head: &Value, (kind, words): (usize, String)) -> Answer {
    match kind {
        0 => {
            let again = json!({"nodeId": head, "expectedHead": head});
            api.post(&format!("{project}/regenerate"), again).await
        }
        _ => {
            let chat = json!({"message": words, "expectedHead": head});
            api.post(&format!("{project}/chat"), chat).await
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_writers_wins_and_nothing_is_lost() {
    let api = Api::with(&[ANTHROPIC], SCENARIO, "").await;
    let project = api.project(json!({"title": "t"})).await;
    api.say(&project, "main", "first").await;
    let mut random = Random(0x0dd_ba11);
    let mut heads: Vec<Value> = Vec::new();
    for round in 0..ROUNDS {
        let before = head(&api, &project).await;
        let writers: [(usize, String); 3] =
            std::array::from_fn(|writer| (random.below(3), format!("{round} of {writer}")));
        let [one, two, three] = &writers;
        let answers: [Answer; 3] = tokio::join!(
            write(&api, &project, &before, one.clone()),
            write(&api, &project, &before, two.clone()),
            write(&api, &project, &before, three.clone())
        )
        .into();
        let won: Vec<usize> = (0..3).filter(|at| answers[*at].status == 200).collect();
        assert_eq!(won.len(), 1, "{answers:?}");
        for answer in answers.iter().filter(|answer| answer.status != 200) {
            let problem = answer.json();
            assert_eq!(answer.status, 409, "{problem}");
            assert!(problem["head"].is_string() || problem["runId"].is_string(), "{problem}");
        }
        let (kind, words) = &writers[won[0]];
        let nodes = api.nodes(&project, "main").await;
        let now = head(&api, &project).await;
        assert_eq!(nodes.last().expect("a node")["id"], now);
        let others = writers.iter().filter(|(_, other)| other != words);
        for (_, other) in others {
            assert!(nodes.iter().all(|node| node["content"] != *other), "{other}");
        }
        if *kind > 0 {
            assert_eq!(nodes[nodes.len() - 2]["content"], *words);
        }
        heads.push(before);
    }
    // Every node that was ever the head is still there, also those off the branch.
    let graph = api.get(&format!("{project}/graph?limit=1000")).await;
    let ids: Vec<&Value> =
        graph["nodes"].as_array().expect("a list").iter().map(|node| &node["id"]).collect();
    assert!(heads.iter().all(|head| ids.contains(&head)), "{graph}");
    assert_eq!(api.refusals().await, [""; 0]);
}

/// The requests differ in the member that they change, so all of them count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_changes_of_different_members_all_stay() {
    let api = Api::with(&[ANTHROPIC], SCENARIO, "").await;
    let project = api.project(json!({"title": "t"})).await;
    let branch = format!("{project}/branches/main");
    for round in 0..ROUNDS {
        let flag = round % 2 == 0;
        let words = format!("round {round}");
        let changes = tokio::join!(
            api.patch(&branch, json!({"pinned": flag})),
            api.patch(&branch, json!({"hidden": flag})),
            api.patch(&branch, json!({"starred": flag})),
            api.patch(&project, json!({"title": words})),
            api.patch(&project, json!({"system": words})),
        );
        for answer in <[Answer; 5]>::from(changes) {
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        let now = api.get(&project).await;
        assert_eq!((&now["title"], &now["system"]), (&json!(words), &json!(words)));
        for member in ["pinned", "hidden", "starred"] {
            assert_eq!(now["branches"][0][member], flag, "{member} in round {round}: {now}");
        }
    }
}
