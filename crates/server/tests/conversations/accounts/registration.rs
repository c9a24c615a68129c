//! Who may register: `users.registration`.

use super::Person;
use crate::support::{ANTHROPIC, Api, Database, text};
use crate::upstreams::SCENARIO;

#[tokio::test]
async fn only_the_first_user_registers_if_the_operator_says_so() {
    for database in [Database::Sqlite, Database::Postgres] {
        let first = "[users]\nregistration = \"first\"\n";
        let api = Api::on(database, &[ANTHROPIC], SCENARIO, first).await;
        let people = ["ada", "bob", "cleo"].map(|name| Person::new(&api.gateway, name));
        let [one, two, three] = &people;
        let (one, two, three) = tokio::join!(one.register(), two.register(), three.register());
        let mut statuses = [&one, &two, &three].map(|answer| answer.status);
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 403, 403], "{database:?}");
        let refused = [one, two, three].into_iter().find(|answer| answer.status == 403);
        let refused = refused.expect("a refusal");
        assert_eq!(refused.json()["type"], "/problems/registration-closed");
        assert!(text(&refused.json()["hint"]).contains("users.registration"));
        assert_eq!(refused.header("content-type"), "application/problem+json");
    }
}

#[tokio::test]
async fn registration_is_refused_at_a_closed_server() {
    let closed = "[users]\nregistration = \"closed\"\n";
    let api = Api::with(&[ANTHROPIC], SCENARIO, closed).await;
    let ada = Person::new(&api.gateway, "ada");
    let refused = ada.register().await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert_eq!(refused.json()["type"], "/problems/registration-closed");
    // Without users, callers are their keys, as before.
    api.get("/api/projects").await;
}
