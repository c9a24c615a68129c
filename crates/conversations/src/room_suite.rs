//! The tests of rooms, channels and calls of webhooks that every conversation store must pass.

use crate::store::{
    Changed, Channel, Commit, Delivery, Member, Outcome, Page, Project, Room, RoomEntry, RoomNews,
    Run, RunStatus, Store, project_scope,
};

/// The message of a failed store operation.
const OK: &str = "the store works";
const PROJECT: &str = "project_of_rooms";
const OWNER: &str = "ada of rooms";

fn page(after: Option<&str>, limit: usize) -> Page {
    Page { after: after.map(str::to_owned), limit }
}

fn channel(id: &str, content: u8) -> Channel {
    Channel { id: id.to_owned(), owner: OWNER.to_owned(), created: 3, sealed: vec![content] }
}

fn room(id: &str, version: u64) -> Room {
    Room {
        id: id.to_owned(),
        owner: OWNER.to_owned(),
        project: PROJECT.to_owned(),
        branch: "branch_of_rooms".to_owned(),
        created: 4,
        version,
        sealed: vec![9, 0, 9],
    }
}

fn entry(room: &str, number: u64, name: Option<&str>) -> RoomEntry {
    let name = name.map(str::to_owned);
    RoomEntry { room: room.to_owned(), number, name, sealed: vec![1, 0, 1] }
}

fn delivery(id: &str, due: Option<u64>) -> Delivery {
    let (id, room) = (id.to_owned(), "room_1".to_owned());
    Delivery { id, room, attempts: 2, due, sealed: vec![5] }
}

/// Checks rooms, and what belongs to them.
pub(crate) async fn check_rooms(store: &dyn Store) {
    let (id, owner) = (PROJECT.to_owned(), OWNER.to_owned());
    store.put_project(Project { id, owner, ..Project::default() }).await.expect(OK);
    channels_are_unique_per_owner(store).await;
    rooms_change_by_version(store).await;
    entries_have_numbers_and_names_of_their_own(store).await;
    deliveries_are_taken_once(store).await;
    purged_project_has_no_rooms(store).await;
}

async fn channels_are_unique_per_owner(store: &dyn Store) {
    assert!(store.add_channel(channel("tutor", 1)).await.expect(OK));
    assert!(!store.add_channel(channel("tutor", 2)).await.expect(OK));
    assert!(store.add_channel(channel("critic", 3)).await.expect(OK));
    let others = Channel { owner: "bob of rooms".to_owned(), ..channel("tutor", 4) };
    assert!(store.add_channel(others.clone()).await.expect(OK));
    let all = store.channels(OWNER, page(None, 9)).await.expect(OK);
    assert_eq!(all, [channel("critic", 3), channel("tutor", 1)]);
    let rest = store.channels(OWNER, page(Some("critic"), 9)).await.expect(OK);
    assert_eq!(rest, [channel("tutor", 1)]);
    let stale = store.change_channel(channel("tutor", 2), channel("tutor", 5)).await.expect(OK);
    assert_eq!(stale, Changed::Stale);
    let changed = store.change_channel(channel("tutor", 1), channel("tutor", 5)).await.expect(OK);
    assert_eq!(changed, Changed::Yes);
    assert_eq!(store.channel(OWNER, "tutor").await.expect(OK), Some(channel("tutor", 5)));
    assert!(store.remove_channel(OWNER, "tutor").await.expect(OK));
    assert!(!store.remove_channel(OWNER, "tutor").await.expect(OK));
    assert_eq!(store.channel(OWNER, "tutor").await.expect(OK), None);
    assert_eq!(store.channel("bob of rooms", "tutor").await.expect(OK), Some(others));
}

async fn rooms_change_by_version(store: &dyn Store) {
    for id in ["room_1", "room_2", "room_3"] {
        store.add_room(room(id, 1)).await.expect(OK);
    }
    let changed = Room { sealed: vec![7], ..room("room_1", 2) };
    assert_eq!(store.change_room(changed.clone()).await.expect(OK), Changed::Yes);
    assert_eq!(store.change_room(room("room_1", 2)).await.expect(OK), Changed::Stale);
    assert_eq!(store.change_room(room("room_9", 2)).await.expect(OK), Changed::Stale);
    assert_eq!(store.room("room_1").await.expect(OK), Some(changed));
    let ids = |rooms: Vec<Room>| rooms.into_iter().map(|room| room.id).collect::<Vec<_>>();
    let newest = store.rooms(OWNER, page(None, 2)).await.expect(OK);
    assert_eq!(ids(newest), ["room_3", "room_2"]);
    let rest = store.rooms(OWNER, page(Some("room_2"), 2)).await.expect(OK);
    assert_eq!(ids(rest), ["room_1"]);
    assert_eq!(store.rooms("eve of rooms", page(None, 9)).await.expect(OK), []);
    let (project, user) = (PROJECT.to_owned(), "eve of rooms".to_owned());
    let member = Member { project, user, ..Member::default() };
    assert!(store.put_member(member, None).await.expect(OK));
    assert_eq!(store.rooms("eve of rooms", page(None, 9)).await.expect(OK).len(), 3);
    assert!(store.remove_room("room_3").await.expect(OK));
    assert!(!store.remove_room("room_3").await.expect(OK));
    assert_eq!(store.room("room_3").await.expect(OK), None);
    let late = Commit { entries: vec![entry("room_3", 1, None)], ..Commit::default() };
    assert_eq!(store.commit(late).await.expect(OK), Outcome::Written);
    assert_eq!(store.room_log("room_3", 0, 9).await.expect(OK), [], "a removed room has no log");
}

async fn entries_have_numbers_and_names_of_their_own(store: &dyn Store) {
    let add = |entries: Vec<RoomEntry>| store.commit(Commit { entries, ..Commit::default() });
    assert_eq!(store.last_entry("room_1").await.expect(OK), 0);
    let first = vec![entry("room_1", 1, Some("a")), entry("room_1", 2, None)];
    assert_eq!(add(first.clone()).await.expect(OK), Outcome::Written);
    let same_number = vec![entry("room_1", 3, None), entry("room_1", 2, Some("b"))];
    assert_eq!(add(same_number).await.expect(OK), Outcome::Stale);
    let same_name = vec![entry("room_1", 3, None), entry("room_1", 4, Some("a"))];
    assert_eq!(add(same_name).await.expect(OK), Outcome::NameTaken);
    assert_eq!(store.last_entry("room_1").await.expect(OK), 2, "nothing of them is written");
    let other_room = vec![entry("room_2", 1, Some("a"))];
    assert_eq!(add(other_room).await.expect(OK), Outcome::Written);
    assert_eq!(store.room_log("room_1", 0, 9).await.expect(OK), first);
    assert_eq!(store.room_log("room_1", 1, 9).await.expect(OK), first[1..]);
    assert_eq!(store.room_log("room_1", 0, 1).await.expect(OK), first[..1]);
    assert_eq!(store.named_entry("room_1", "a").await.expect(OK).as_ref(), first.first());
    assert_eq!(store.named_entry("room_1", "b").await.expect(OK), None);
    // Writers at the same time: each number is given once.
    let third = |name: &'static str| add(vec![entry("room_1", 3, Some(name))]);
    let outcomes = futures_util::future::join_all(["x", "y", "z"].map(third)).await;
    let written = outcomes.iter().filter(|outcome| matches!(outcome, Ok(Outcome::Written)));
    assert_eq!(written.count(), 1, "{outcomes:?}");
    assert_eq!(store.last_entry("room_1").await.expect(OK), 3);
    let asked_for = ["room_1", "room_9"].map(str::to_owned);
    let news = RoomNews { room: "room_1".to_owned(), last: 3, runs: Vec::new() };
    assert_eq!(store.room_news(&asked_for).await.expect(OK), [news]);
}

async fn deliveries_are_taken_once(store: &dyn Store) {
    for (id, due) in [("d1", Some(10)), ("d2", Some(5)), ("d3", Some(30)), ("d4", None)] {
        store.put_delivery(delivery(id, due)).await.expect(OK);
    }
    assert_eq!(store.take_due(4, 50, 9).await.expect(OK), []);
    assert_eq!(store.take_due(10, 50, 1).await.expect(OK), [delivery("d2", Some(5))]);
    assert_eq!(store.take_due(10, 50, 9).await.expect(OK), [delivery("d1", Some(10))]);
    assert_eq!(store.take_due(10, 50, 9).await.expect(OK), []);
    assert_eq!(store.delivery("d1").await.expect(OK), Some(delivery("d1", Some(50))));
    store.put_delivery(delivery("d1", None)).await.expect(OK);
    let dead = store.dead_deliveries("room_1", page(None, 9)).await.expect(OK);
    assert_eq!(dead, [delivery("d1", None), delivery("d4", None)]);
    let rest = store.dead_deliveries("room_1", page(Some("d1"), 9)).await.expect(OK);
    assert_eq!(rest, [delivery("d4", None)]);
    assert!(store.remove_delivery("d4").await.expect(OK));
    assert!(!store.remove_delivery("d4").await.expect(OK));
}

async fn purged_project_has_no_rooms(store: &dyn Store) {
    let run = Run {
        id: "run_of_room".to_owned(),
        owner: OWNER.to_owned(),
        scope: project_scope(PROJECT),
        name: None,
        reference: None,
        instance: "one".to_owned(),
        epoch: 1,
        status: RunStatus::Running,
        created: 1,
        expires: None,
        sealed: vec![1],
    };
    let start = Commit { start: Some(run), ..Commit::default() };
    assert_eq!(store.commit(start).await.expect(OK), Outcome::Written);
    let news = store.room_news(&["room_1".to_owned()]).await.expect(OK);
    assert_eq!(news[0].runs, ["run_of_room"]);
    assert!(store.remove_project(PROJECT).await.expect(OK));
    assert_eq!(store.room("room_1").await.expect(OK), None);
    assert_eq!(store.room_log("room_1", 0, 9).await.expect(OK), []);
    assert_eq!(store.delivery("d1").await.expect(OK), None);
    assert_eq!(store.run("run_of_room").await.expect(OK), None);
}
