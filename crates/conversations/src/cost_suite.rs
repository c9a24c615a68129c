//! The tests of costs that every conversation store must pass.

use throughline_canonical::Cost;

use crate::store::{Commit, CostSum, Outcome, Project, RunCost, Store};
use crate::suite::OK;

const PROJECT: &str = "project_costs";

fn of(run: &str, room: Option<&str>, channel: Option<&str>, cost: Option<Cost>) -> RunCost {
    RunCost {
        run: run.to_owned(),
        project: PROJECT.to_owned(),
        room: room.map(str::to_owned),
        channel: channel.map(str::to_owned),
        cost,
    }
}

/// Checks the costs of a store.
pub(crate) async fn check_costs(store: &dyn Store) {
    let known = |picodollars| Some(Cost { picodollars, unpriced_tokens: 0 });
    let unpriced = Some(Cost { picodollars: 0, unpriced_tokens: 7 });
    // Sums of a project can have more than 32 bits.
    let large = 5_000_000_000_000;
    for cost in [
        of("plain", None, None, known(3)),
        of("one", Some("r1"), Some("a"), known(large)),
        of("two", Some("r1"), Some("a"), known(large)),
        of("three", Some("r1"), Some("b"), unpriced),
        of("four", Some("r1"), Some("b"), None),
        of("other", Some("r2"), Some("a"), known(1)),
        // A run has one cost.
        of("one", Some("r1"), Some("a"), known(99)),
        RunCost { project: "another".to_owned(), ..of("five", None, None, known(50)) },
    ] {
        let commit = Commit { cost: Some(cost), ..Commit::default() };
        assert_eq!(store.commit(commit).await.expect(OK), Outcome::Written);
    }
    let sum = |channel: Option<&str>, cost: Option<Cost>, answers, unpriced_answers| CostSum {
        channel: channel.map(str::to_owned),
        cost: cost.unwrap_or_default(),
        answers,
        unpriced_answers,
    };
    let in_room = store.costs(PROJECT, Some("r1")).await.expect(OK);
    let a = sum(Some("a"), known(2 * large), 2, 0);
    let b = sum(Some("b"), unpriced, 2, 2);
    assert_eq!(in_room, [a, b.clone()]);
    let mut all = store.costs(PROJECT, None).await.expect(OK);
    all.sort_by(|one, other| one.channel.cmp(&other.channel));
    let a = sum(Some("a"), known(2 * large + 1), 3, 0);
    assert_eq!(all, [sum(None, known(3), 1, 0), a, b]);
    let project = Project { id: PROJECT.to_owned(), ..Project::default() };
    store.put_project(project).await.expect(OK);
    assert!(store.remove_project(PROJECT).await.expect(OK));
    assert_eq!(store.costs(PROJECT, None).await.expect(OK), []);
    assert_eq!(store.costs("another", None).await.expect(OK).len(), 1);
}
