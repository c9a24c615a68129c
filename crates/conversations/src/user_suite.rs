//! The tests of users, sessions and members that every conversation store must pass.

use crate::store::{
    Changed, Commit, Credential, CredentialChange, KeyChange, Member, Node, Outcome, Page,
    PreviousKey, Project, ProjectFacts, Run, RunEnd, RunStatus, SealedUnder, Store, User,
    UserSession, project_scope,
};

/// The message of a failed store operation.
const OK: &str = "the store works";

fn credential(content: u8) -> Credential {
    Credential { auth_record: vec![content; 49], wrapped_master_key: vec![content; 80] }
}

fn user(id: &str, unique_name: &str) -> User {
    User {
        id: id.to_owned(),
        name: format!("Name of {id}"),
        unique_name: unique_name.to_owned(),
        created: 5,
        kdf: r#"{"memoryKiB":65536}"#.to_owned(),
        passphrase: credential(1),
        recovery: credential(2),
        public_key: vec![3; 32],
        wrapped_private_key: vec![4; 80],
    }
}

fn session(token: u8, user: &str, expires: u64) -> UserSession {
    UserSession { token: [token; 32], user: user.to_owned(), created: 6, expires }
}

/// Checks users, and their sessions.
pub(crate) async fn check_users(store: &dyn Store) {
    assert!(!store.has_users().await.expect(OK));
    only_one_user_is_the_first(store).await;
    names_of_users_are_unique(store).await;
    session_is_found_until_it_ends(store).await;
    changed_credentials_end_other_sessions(store).await;
}

async fn only_one_user_is_the_first(store: &dyn Store) {
    let eager = |name: &str| store.add_first_user(user(&format!("user_{name}"), name));
    // All of them at once.
    let added = futures_util::future::join_all(["first", "second", "third"].map(eager)).await;
    let added: Vec<bool> = added.into_iter().map(|added| added.expect(OK)).collect();
    assert_eq!(added.iter().filter(|added| **added).count(), 1, "{added:?}");
    assert!(store.has_users().await.expect(OK));
    assert!(!store.add_first_user(user("user_late", "late")).await.expect(OK));
    assert_eq!(store.user_named("late").await.expect(OK), None);
}

async fn names_of_users_are_unique(store: &dyn Store) {
    let (ada, bob) = (user("user_ada", "ada"), user("user_bob", "bob"));
    assert!(store.add_user(ada.clone()).await.expect(OK));
    assert!(!store.add_user(user("user_other", "ada")).await.expect(OK));
    assert_eq!(store.user("user_other").await.expect(OK), None);
    assert!(store.add_user(bob.clone()).await.expect(OK));
    assert_eq!(store.user("user_ada").await.expect(OK), Some(ada));
    assert_eq!(store.user_named("bob").await.expect(OK), Some(bob));
    assert_eq!(store.user_named("eve").await.expect(OK), None);
}

async fn session_is_found_until_it_ends(store: &dyn Store) {
    for (token, expires) in [(1, 100), (2, 101)] {
        store.add_session(session(token, "user_ada", expires)).await.expect(OK);
    }
    assert_eq!(store.session([1; 32]).await.expect(OK), Some(session(1, "user_ada", 100)));
    assert_eq!(store.session([9; 32]).await.expect(OK), None);
    assert_eq!(store.trim(99, u64::MAX).await.expect(OK), 0);
    assert_eq!(store.trim(100, u64::MAX).await.expect(OK), 1);
    assert_eq!(store.session([1; 32]).await.expect(OK), None);
    assert!(store.remove_session([2; 32]).await.expect(OK));
    assert!(!store.remove_session([2; 32]).await.expect(OK));
    assert_eq!(store.session([2; 32]).await.expect(OK), None);
}

async fn changed_credentials_end_other_sessions(store: &dyn Store) {
    for (token, user) in [(1, "user_ada"), (2, "user_ada"), (3, "user_bob")] {
        store.add_session(session(token, user, 900)).await.expect(OK);
    }
    let change = CredentialChange {
        user: "user_ada".to_owned(),
        from: credential(1),
        kdf: "{}".to_owned(),
        passphrase: credential(7),
        recovery: credential(8),
        kept_session: Some([2; 32]),
    };
    assert!(store.change_credentials(change.clone()).await.expect(OK));
    let changed = User {
        kdf: "{}".to_owned(),
        passphrase: credential(7),
        recovery: credential(8),
        ..user("user_ada", "ada")
    };
    assert_eq!(store.user("user_ada").await.expect(OK), Some(changed.clone()));
    let mut left = Vec::new();
    for token in [1, 2, 3] {
        left.extend(store.session([token; 32]).await.expect(OK).map(|session| session.token[0]));
    }
    assert_eq!(left, [2, 3]);
    // Another change was faster: nothing is written.
    let late = CredentialChange { kept_session: None, ..change.clone() };
    assert!(!store.change_credentials(late).await.expect(OK));
    assert!(store.session([2; 32]).await.expect(OK).is_some());
    let unknown = CredentialChange { user: "user_eve".to_owned(), ..change.clone() };
    assert!(!store.change_credentials(unknown).await.expect(OK));
    let last = CredentialChange { from: credential(7), kept_session: None, ..change };
    assert!(store.change_credentials(last).await.expect(OK));
    assert_eq!(store.session([2; 32]).await.expect(OK), None);
    assert!(store.session([3; 32]).await.expect(OK).is_some());
    assert!(store.remove_session([3; 32]).await.expect(OK));
}

/// Checks members and keys of projects.
pub(crate) async fn check_members(store: &dyn Store) {
    members_read_what_is_shared_with_them(store).await;
    next_key_needs_the_present_one_and_goes_to_members_only(store).await;
    commit_under_an_earlier_key_writes_nothing(store).await;
}

fn sealed_project(id: &str, key_check: &str) -> Project {
    Project {
        id: id.to_owned(),
        owner: "user_ada".to_owned(),
        created: 5,
        facts: ProjectFacts { key_check: Some(key_check.to_owned()), ..ProjectFacts::default() },
        sealed: b"title".to_vec(),
    }
}

fn member(project: &str, user: &str, key: u8) -> Member {
    let wrapped_key = Some(vec![key; 80]);
    Member { project: project.to_owned(), user: user.to_owned(), created: 5, wrapped_key }
}

async fn add(store: &dyn Store, member: Member, key_check: &str) -> bool {
    store.put_member(member, Some(key_check.to_owned())).await.expect(OK)
}

async fn members_read_what_is_shared_with_them(store: &dyn Store) {
    let listed = async |user: &str| {
        let page = Page { after: None, limit: 10 };
        let found = store.projects(user, false, page).await.expect(OK);
        found.into_iter().map(|project| project.id).collect::<Vec<_>>()
    };
    for id in ["shared_1", "shared_2"] {
        store.put_project(sealed_project(id, "k1")).await.expect(OK);
    }
    assert!(!add(store, member("shared_1", "user_bob", 1), "k0").await, "another key");
    assert!(!add(store, member("unknown", "user_bob", 1), "k1").await);
    assert!(!store.put_member(member("shared_1", "user_bob", 1), None).await.expect(OK));
    assert_eq!(listed("user_bob").await, [""; 0]);
    assert!(add(store, member("shared_1", "user_bob", 1), "k1").await);
    assert!(add(store, member("shared_1", "user_cleo", 3), "k1").await);
    assert!(add(store, member("shared_1", "user_bob", 2), "k1").await);
    let both = [member("shared_1", "user_bob", 2), member("shared_1", "user_cleo", 3)];
    assert_eq!(store.members("shared_1").await.expect(OK), both);
    assert_eq!(store.member("shared_1", "user_bob").await.expect(OK).as_ref(), both.first());
    assert_eq!(store.member("shared_2", "user_bob").await.expect(OK), None);
    assert_eq!(listed("user_bob").await, ["shared_1"]);
    assert_eq!(listed("user_ada").await, ["shared_2", "shared_1"]);
    assert!(store.remove_member("shared_1", "user_bob").await.expect(OK));
    assert!(!store.remove_member("shared_1", "user_bob").await.expect(OK));
    assert_eq!(listed("user_bob").await, [""; 0]);
    // Members go with their project, and do not see a deleted one.
    assert!(add(store, member("shared_2", "user_bob", 1), "k1").await);
    let mut deleted = sealed_project("shared_2", "k1");
    deleted.facts.deleted = Some(7);
    store.put_project(deleted).await.expect(OK);
    assert_eq!(listed("user_bob").await, [""; 0]);
    let page = Page { after: None, limit: 10 };
    assert_eq!(store.projects("user_bob", true, page).await.expect(OK), []);
    assert!(store.remove_project("shared_2").await.expect(OK));
    assert_eq!(store.members("shared_2").await.expect(OK), []);
}

async fn commit_under_an_earlier_key_writes_nothing(store: &dyn Store) {
    store.put_project(sealed_project("p_sealed", "one")).await.expect(OK);
    let start = Run {
        id: "run_sealed".to_owned(),
        owner: "user_ada".to_owned(),
        scope: project_scope("p_sealed"),
        name: None,
        reference: None,
        instance: "i".to_owned(),
        epoch: 1,
        status: RunStatus::Running,
        created: 1,
        expires: None,
        sealed: vec![1],
    };
    let started = Commit { start: Some(start.clone()), ..Commit::default() };
    assert_eq!(store.commit(started).await.expect(OK), Outcome::Written);
    let end = || RunEnd {
        run: start.id.clone(),
        epoch: 1,
        status: RunStatus::Completed,
        expires: None,
        sealed: vec![2],
    };
    let commit = |node: &str, project: &str, key_check: &str| Commit {
        sealed_under: Some(SealedUnder {
            project: project.to_owned(),
            key_check: key_check.to_owned(),
        }),
        nodes: vec![Node { id: node.to_owned(), ..Node::default() }],
        ..Commit::default()
    };
    let outcome = store.commit(commit("n_one", "p_sealed", "one")).await.expect(OK);
    assert_eq!(outcome, Outcome::Written);
    let previous = PreviousKey { key_check: "one".to_owned(), previous: String::new() };
    let change = KeyChange {
        project: "p_sealed".to_owned(),
        previous,
        key_check: "two".to_owned(),
        wrapped_keys: Vec::new(),
    };
    assert!(store.change_key(change).await.expect(OK));
    for (project, key_check) in [("p_sealed", "one"), ("p_none", "two")] {
        let late = commit("n_two", project, key_check);
        for end in [None, Some(end())] {
            let late = Commit { end, ..late.clone() };
            assert_eq!(store.commit(late).await.expect(OK), Outcome::KeyChanged);
        }
    }
    assert_eq!(store.node("n_two").await.expect(OK), None);
    let stored = store.run("run_sealed").await.expect(OK);
    assert_eq!(stored, Some(start.clone()), "the run has not ended");
    let present = Commit { end: Some(end()), ..commit("n_two", "p_sealed", "two") };
    assert_eq!(store.commit(present).await.expect(OK), Outcome::Written);
    let stored = store.run("run_sealed").await.expect(OK).map(|run| run.status);
    assert_eq!(stored, Some(RunStatus::Completed));
    assert!(store.remove_run("run_sealed").await.expect(OK));
    let ids = ["p_sealed", "p_none"].map(str::to_owned);
    let checks = store.key_checks(&ids).await.expect(OK);
    assert_eq!(checks, [("p_sealed".to_owned(), Some("two".to_owned()))]);
    for node in ["n_one", "n_two"] {
        assert!(store.remove(node).await.expect(OK));
    }
    assert!(store.remove_project("p_sealed").await.expect(OK));
}

async fn next_key_needs_the_present_one_and_goes_to_members_only(store: &dyn Store) {
    let change = |from: &str, to: &str, users: &[&str]| KeyChange {
        project: "shared_1".to_owned(),
        previous: PreviousKey {
            key_check: from.to_owned(),
            previous: format!("{from} under {to}"),
        },
        key_check: to.to_owned(),
        wrapped_keys: users.iter().map(|user| ((*user).to_owned(), vec![9; 80])).collect(),
    };
    let both = ["user_ada", "user_cleo"];
    for wrong in [
        change("k0", "k2", &both),
        change("k1", "k2", &["user_ada", "user_cleo", "user_bob"]),
        KeyChange { project: "unknown".to_owned(), ..change("k1", "k2", &both) },
    ] {
        assert!(!store.change_key(wrong.clone()).await.expect(OK), "{wrong:?}");
    }
    let read = async || store.project("shared_1").await.expect(OK).expect("a project");
    assert_eq!(read().await, sealed_project("shared_1", "k1"), "nothing was written");
    assert_eq!(store.members("shared_1").await.expect(OK), [member("shared_1", "user_cleo", 3)]);
    assert!(store.change_key(change("k1", "k2", &both)).await.expect(OK));
    assert!(!store.change_key(change("k1", "k3", &both)).await.expect(OK), "a second writer");
    assert!(store.change_key(change("k2", "k3", &both)).await.expect(OK));
    let facts = read().await.facts;
    assert_eq!(facts.key_check.as_deref(), Some("k3"));
    let previous: Vec<&str> = facts.previous_keys.iter().map(|key| &*key.previous).collect();
    assert_eq!(previous, ["k2 under k3", "k1 under k2"]);
    let keys = [member("shared_1", "user_ada", 9), member("shared_1", "user_cleo", 9)];
    assert_eq!(store.members("shared_1").await.expect(OK), keys);
    assert!(store.change_key(change("k3", "k4", &["user_ada"])).await.expect(OK));
    let without = Member { wrapped_key: None, ..member("shared_1", "user_cleo", 9) };
    assert_eq!(store.members("shared_1").await.expect(OK), [keys[0].clone(), without]);
    let facts = read().await.facts;
    // Who knows only an older key writes nothing.
    let (from, to) = (sealed_project("shared_1", "k2"), sealed_project("shared_1", "k2"));
    assert_eq!(store.change_project(from, to).await.expect(OK), Changed::Stale);
    assert_eq!(read().await.facts, facts);
    assert!(store.remove_project("shared_1").await.expect(OK));
}
