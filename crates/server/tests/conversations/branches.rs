//! Branches: the lock to a provider and a model, forks, edits, merges and deletion.

use serde_json::{Value, json};

use crate::support::{ANTHROPIC, Api, RESPONSES, done, lines, text};

/// Covers: S4-30, S4-32, S4-40, S4-48, S4-49, S4-50, S4-51, case 40
#[tokio::test]
async fn branch_inherits_its_lock_unless_it_names_another() {
    let api = Api::over(&[ANTHROPIC, RESPONSES]).await;
    let project = api.project(json!({"title": "t", "model": "special"})).await;
    for (at, (new, provider, model)) in [
        (json!({}), "claude", "special"),
        (json!({"provider": "", "model": " "}), "claude", "special"),
        (json!({"provider": "Claude"}), "claude", "special"),
        (json!({"model": "other"}), "claude", "other"),
        (json!({"provider": " OPENAI_RESPONSES "}), "openai_responses", "gpt-6.1-sol"),
        (json!({"provider": "openai_responses", "model": "x"}), "openai_responses", "x"),
        // The branch that was made last but one.
        (json!({"fromRef": "b4"}), "openai_responses", "gpt-6.1-sol"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut body = new.clone();
        body["name"] = format!("b{at}").into();
        let branch = api.branch(&project, body).await;
        assert_eq!((text(&branch["provider"]), text(&branch["model"])), (provider, model), "{new}");
    }
    let unknown = json!({"name": "x", "provider": "nobody"});
    let refused = api.post(&format!("{project}/branches"), unknown).await;
    assert_eq!(refused.status, 400);
    assert!(text(&refused.json()["hint"]).contains("openai_responses"), "{}", refused.text());
}

/// Covers: S4-7, S4-34, C-26, case 39
#[tokio::test]
async fn locked_branch_refuses_another_model_and_says_how_to_branch() {
    let api = Api::over(&[ANTHROPIC, RESPONSES]).await;
    let project = api.project(json!({"title": "t"})).await;
    let chat = format!("{project}/chat");
    for other in [
        json!({"message": "plain", "llmProvider": "openai_responses"}),
        json!({"message": "plain", "llmModel": "other"}),
    ] {
        let refused = api.post(&chat, other).await;
        let problem = refused.json();
        assert_eq!((refused.status, &problem["status"]), (409, &json!(409)), "{problem}");
        assert_eq!(refused.header("content-type"), "application/problem+json");
        let lock = json!({"provider": "claude", "model": "claude-sonnet-4-5"});
        assert_eq!(problem["lock"], lock);
        assert!(text(&problem["hint"]).contains("/branches"), "{problem}");
    }
    let change = json!({"provider": "openai_responses"});
    assert_eq!(api.patch(&format!("{project}/branches/main"), change).await.status, 409);
    assert_eq!(api.count(&project).await, 0);
    assert_eq!(api.simulators[1].received().await.len(), 0);
    // Naming what the branch has is no conflict.
    let same =
        json!({"message": "plain", "llmProvider": " CLAUDE ", "llmModel": "claude-sonnet-4-5"});
    assert_eq!(done(&api.chat(&project, same).await)["reason"], "completed");
    // `autoBranch` makes the branch.
    let auto = json!({"message": "plain", "llmProvider": "openai_responses", "autoBranch": true});
    assert_eq!(done(&api.chat(&project, auto).await)["reason"], "completed");
    let list = api.get(&format!("{project}/branches")).await;
    let made = &list["branches"][1];
    assert_eq!(text(&made["provider"]), "openai_responses");
    assert!(text(&made["name"]).starts_with("main-"), "{made}");
    let main = api.nodes(&project, "main").await;
    assert_eq!(main.len(), 2);
    assert_eq!(made["forkNode"], main[1]["id"]);
    assert_eq!(api.nodes(&project, text(&made["name"])).await.len(), 4);
}

#[tokio::test]
async fn stale_head_is_refused_with_the_present_one() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "t"})).await;
    let first = done(&api.say(&project, "main", "plain").await)["nodeId"].clone();
    let second = done(&api.say(&project, "main", "plain").await)["nodeId"].clone();
    let stale = json!({"message": "plain", "expectedHead": first});
    let refused = api.post(&format!("{project}/chat"), stale).await;
    assert_eq!((refused.status, &refused.json()["head"]), (409, &second));
    let present = json!({"message": "plain", "expectedHead": second});
    assert_eq!(done(&api.chat(&project, present).await)["reason"], "completed");
    assert_eq!(api.count(&project).await, 6);
}

#[tokio::test]
async fn fork_copies_nothing() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "t"})).await;
    api.say(&project, "main", "plain one").await;
    api.say(&project, "main", "plain two").await;
    let main = api.nodes(&project, "main").await;
    let whole = api.branch(&project, json!({"name": "whole"})).await;
    assert_eq!((&whole["head"], &whole["forkNode"]), (&main[3]["id"], &main[3]["id"]));
    let from_node = api.branch(&project, json!({"name": "part", "fromRef": main[1]["id"]})).await;
    assert_eq!(from_node["head"], main[1]["id"]);
    assert_eq!(api.count(&project).await, 4);
    assert_eq!(api.nodes(&project, "whole").await, main);
    assert_eq!(api.nodes(&project, "part").await, main[..2]);
    let taken = api.post(&format!("{project}/branches"), json!({"name": "part"})).await;
    assert_eq!(taken.status, 409, "{}", taken.text());
    // The branches grow apart.
    api.say(&project, "part", "plain three").await;
    assert_eq!(api.nodes(&project, "main").await, main);
    assert_eq!((api.nodes(&project, "part").await.len(), api.count(&project).await), (4, 6));
}

/// Covers: S4-33
#[tokio::test]
async fn edit_makes_a_sibling_and_a_branch() {
    let api = Api::over(&[ANTHROPIC, RESPONSES]).await;
    let project = api.project(json!({"title": "t"})).await;
    api.say(&project, "main", "plain one").await;
    api.say(&project, "main", "plain two").await;
    let main = api.nodes(&project, "main").await;
    let edit = json!({"nodeId": main[2]["id"], "message": "ponder instead", "branch": "other",
        "llmProvider": "openai_responses"});
    let answer = api.post(&format!("{project}/edit"), edit).await.expect_ok();
    assert_eq!(done(&lines(&answer))["nodeId"], answer.header("x-throughline-node"));
    let edited = api.nodes(&project, "other").await;
    assert_eq!((&edited[..2], edited.len()), (&main[..2], 4));
    assert_eq!(edited[2]["parent"], main[2]["parent"]);
    assert_eq!(edited[2]["content"], "ponder instead");
    assert_eq!((text(&edited[3]["provider"]), api.count(&project).await), ("openai_responses", 6));
    assert_eq!(api.nodes(&project, "main").await, main);
    let answer = json!({"nodeId": main[1]["id"], "message": "x"});
    let refused = api.post(&format!("{project}/edit"), answer).await;
    assert_eq!(refused.status, 400);
    assert!(text(&refused.json()["hint"]).contains("regenerate"));
}

#[tokio::test]
async fn regenerated_answer_is_a_sibling_and_the_new_head() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "t"})).await;
    api.say(&project, "main", "plain one").await;
    let before = api.nodes(&project, "main").await;
    let again = format!("{project}/regenerate");
    let lines = lines(&api.post(&again, json!({"nodeId": before[1]["id"]})).await.expect_ok());
    let after = api.nodes(&project, "main").await;
    assert_eq!(done(&lines)["nodeId"], after[1]["id"]);
    assert_ne!(after[1]["id"], before[1]["id"]);
    assert_eq!((&after[0], &after[1]["parent"]), (&before[0], &before[1]["parent"]));
    // The first answer is still there, but no branch ends with it.
    let node = api.get(&format!("{project}/nodes/{}", text(&before[1]["id"]))).await;
    assert_eq!(node, before[1]);
    for node in [&before[1]["id"], &before[0]["id"]] {
        let refused = api.post(&again, json!({"nodeId": node})).await;
        assert_eq!(refused.status, 409);
        assert!(text(&refused.json()["hint"]).contains("/edit"), "{}", refused.text());
    }
    assert_eq!(api.count(&project).await, 3);
}

///
#[tokio::test]
async fn merge_adds_one_node_with_two_parents() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "t"})).await;
    api.say(&project, "main", "plain one").await;
    api.branch(&project, json!({"name": "side"})).await;
    api.say(&project, "side", "ponder").await;
    let side = api.nodes(&project, "side").await;
    let merge = json!({"from": "side", "into": "main", "strategy": "ours", "summary": "It works."});
    let merged = api.post(&format!("{project}/merge"), merge).await;
    assert_eq!(merged.status, 201, "{}", merged.text());
    let main = api.nodes(&project, "main").await;
    assert_eq!(merged.json()["head"], main[2]["id"]);
    assert_eq!(main[2]["mergedFrom"], side[3]["id"]);
    assert!(text(&main[2]["content"]).contains("It works."));
    assert_eq!(done(&api.say(&project, "main", "plain").await)["reason"], "completed");
    // Without a summary, the last answer is taken over.
    let merge = json!({"from": "side", "into": "main"});
    let merged = api.post(&format!("{project}/merge"), merge).await.json();
    assert!(text(&merged["node"]["content"]).contains("I have thought."), "{merged}");
    for wrong in [
        json!({"from": "main", "into": "main"}),
        json!({"from": "side", "into": "main", "strategy": "theirs"}),
    ] {
        assert_eq!(api.post(&format!("{project}/merge"), wrong).await.status, 400);
    }
    assert_eq!(api.refusals().await, [""; 0]);
}

///
#[tokio::test]
async fn branches_are_pinned_hidden_starred_and_renamed() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "t"})).await;
    api.branch(&project, json!({"name": "two words"})).await;
    let path = format!("{project}/branches/two%20words");
    let change = json!({"pinned": true, "hidden": true, "starred": true, "name": "three"});
    let changed = api.patch(&path, change).await.expect_ok().json();
    for member in ["pinned", "hidden", "starred"] {
        assert_eq!(changed[member], true, "{member}");
    }
    let names = |list: &Value| -> Vec<String> {
        let branches = list["branches"].as_array().expect("a list of branches");
        branches.iter().map(|branch| text(&branch["name"]).to_owned()).collect()
    };
    assert_eq!(names(&api.get(&format!("{project}/branches")).await), ["three", "main"]);
    let page = api.get(&format!("{project}/branches?limit=1")).await;
    assert_eq!(names(&page), ["three"]);
    let rest = format!("{project}/branches?limit=1&after={}", text(&page["next"]));
    let rest = api.get(&rest).await;
    assert_eq!((names(&rest), &rest["next"]), (vec!["main".to_owned()], &Value::Null));
    assert_eq!(api.patch(&path, json!({"pinned": false})).await.status, 404);
    let taken = json!({"name": "main"});
    assert_eq!(api.patch(&format!("{project}/branches/three"), taken).await.status, 409);
    let unknown = json!({"pined": true});
    assert_eq!(api.patch(&format!("{project}/branches/three"), unknown).await.status, 400);
}

#[tokio::test]
async fn deleted_branch_comes_back_until_it_is_purged() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "t"})).await;
    api.say(&project, "main", "plain").await;
    api.branch(&project, json!({"name": "side"})).await;
    api.say(&project, "side", "plain").await;
    let side = format!("{project}/branches/side");
    assert_eq!(api.delete(&side).await.status, 204);
    assert_eq!(api.count(&project).await, 4);
    let gone =
        api.post(&format!("{project}/chat"), json!({"branch": "side", "message": "x"})).await;
    assert_eq!(gone.status, 404);
    let deleted = api.get(&format!("{project}/branches?deleted=true")).await;
    assert_eq!(deleted["branches"][0]["name"], "side");
    api.post(&format!("{side}/restore"), Value::Null).await.expect_ok();
    assert_eq!(api.nodes(&project, "side").await.len(), 4);
    // A purge keeps what other branches have.
    assert_eq!(api.delete(&format!("{side}?purge=true")).await.status, 204);
    assert_eq!((api.count(&project).await, api.nodes(&project, "main").await.len()), (2, 2));
    assert_eq!(api.post(&format!("{side}/restore"), Value::Null).await.status, 404);
}

#[tokio::test]
async fn star_of_a_node_is_kept() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "t"})).await;
    let node = text(&done(&api.say(&project, "main", "plain").await)["nodeId"]).to_owned();
    let path = format!("{project}/nodes/{node}");
    assert_eq!(
        api.patch(&path, json!({"starred": true})).await.expect_ok().json()["starred"],
        true
    );
    assert_eq!(api.get(&path).await["starred"], true);
    assert_eq!(api.get(&format!("{project}/graph")).await["nodes"][1]["starred"], true);
    assert_eq!(api.patch(&path, json!({"stared": true})).await.status, 400);
}

#[tokio::test]
async fn history_is_paged_in_both_orders() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "t"})).await;
    for _ in 0..3 {
        api.say(&project, "main", "plain").await;
    }
    let all = api.nodes(&project, "main").await;
    for order in ["asc", "desc"] {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let path = format!("{project}/nodes?order={order}&limit=4&after={after}");
            let page = api.get(&path).await;
            seen.extend(page["nodes"].as_array().cloned().unwrap_or_default());
            match page["next"].as_str() {
                Some(next) => after = next.to_owned(),
                None => break,
            }
        }
        if order == "desc" {
            seen.reverse();
        }
        assert_eq!(seen, all, "{order}");
    }
}
