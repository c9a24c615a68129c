//! The tests of users and sessions that every conversation store must pass.

use crate::store::{Credential, CredentialChange, Store, User, UserSession};

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
    names_of_users_are_unique(store).await;
    session_is_found_until_it_ends(store).await;
    changed_credentials_end_other_sessions(store).await;
}

async fn names_of_users_are_unique(store: &dyn Store) {
    let (ada, bob) = (user("user_ada", "ada"), user("user_bob", "bob"));
    assert!(store.add_user(ada.clone()).await.expect(OK));
    assert!(store.has_users().await.expect(OK));
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
