//! A store that records the result of each write.

use std::sync::Arc;
use std::time::Duration;

use throughline_gateway::thinking::health::StoreHealth;
use throughline_gateway::thinking::store::StoreFuture;

use crate::store::{
    Branch, Changed, Channel, Commit, CostSum, CredentialChange, Delivery, Detail, KeyChange,
    LogPiece, Member, MemberStore, Node, NodeFacts, NodeStore, Outcome, Page, Piece, Project,
    ProjectStore, Reference, Room, RoomEntry, RoomNews, RoomStore, Run, RunStore, Store, TokenHash,
    User, UserSession, UserStore,
};

/// A store, and what is known about the writes to it.
#[derive(Debug)]
pub struct WatchedStore {
    store: Arc<dyn Store>,
    health: Arc<StoreHealth>,
}

impl WatchedStore {
    /// Watches a store.
    pub fn new(store: Arc<dyn Store>, health: Arc<StoreHealth>) -> Self {
        Self { store, health }
    }

    /// Records a write. A write that had nothing to do, as `wrote` says, proves nothing.
    fn watch<'a, T: Send + 'a>(
        &'a self,
        write: StoreFuture<'a, T>,
        wrote: fn(&T) -> bool,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let result = write.await;
            if result.as_ref().map_or(true, wrote) {
                self.health.record(&result);
            }
            result
        })
    }
}

impl NodeStore for WatchedStore {
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        self.watch(self.store.commit(commit), |outcome| *outcome == Outcome::Written)
    }

    fn node(&self, id: &str) -> StoreFuture<'_, Option<Node>> {
        self.store.node(id)
    }

    fn named(&self, owner: &str, name: &str) -> StoreFuture<'_, Option<Node>> {
        self.store.named(owner, name)
    }

    fn path(&self, id: &str, most: usize, detail: Detail) -> StoreFuture<'_, Vec<Node>> {
        self.store.path(id, most, detail)
    }

    fn path_ids(&self, id: &str, most: usize) -> StoreFuture<'_, Vec<String>> {
        self.store.path_ids(id, most)
    }

    fn path_page(
        &self,
        id: &str,
        page: Page,
        detail: Detail,
    ) -> StoreFuture<'_, Option<Vec<Node>>> {
        self.store.path_page(id, page, detail)
    }

    fn raw(&self, id: &str) -> StoreFuture<'_, Option<Vec<u8>>> {
        self.store.raw(id)
    }

    fn remove(&self, id: &str) -> StoreFuture<'_, bool> {
        self.watch(self.store.remove(id), |removed| *removed)
    }

    fn put_reference(&self, reference: Reference) -> StoreFuture<'_, ()> {
        self.watch(self.store.put_reference(reference), |()| true)
    }

    fn reference(&self, id: &str) -> StoreFuture<'_, Option<Reference>> {
        self.store.reference(id)
    }

    fn remove_reference(&self, id: &str) -> StoreFuture<'_, bool> {
        self.watch(self.store.remove_reference(id), |removed| *removed)
    }

    fn trim(&self, now: u64, bytes: u64) -> StoreFuture<'_, u64> {
        self.watch(self.store.trim(now, bytes), |removed| *removed > 0)
    }

    /// The result is recorded by [`StoreHealth::check`].
    fn check_write(&self) -> StoreFuture<'_, ()> {
        self.store.check_write()
    }
}

impl ProjectStore for WatchedStore {
    fn put_project(&self, project: Project) -> StoreFuture<'_, ()> {
        self.watch(self.store.put_project(project), |()| true)
    }

    fn project(&self, id: &str) -> StoreFuture<'_, Option<Project>> {
        self.store.project(id)
    }

    fn projects(&self, owner: &str, deleted: bool, page: Page) -> StoreFuture<'_, Vec<Project>> {
        self.store.projects(owner, deleted, page)
    }

    fn remove_project(&self, id: &str) -> StoreFuture<'_, bool> {
        self.watch(self.store.remove_project(id), |removed| *removed)
    }

    fn branches(&self, project: &str) -> StoreFuture<'_, Vec<Reference>> {
        self.store.branches(project)
    }

    fn key_checks(&self, ids: &[String]) -> StoreFuture<'_, Vec<(String, Option<String>)>> {
        self.store.key_checks(ids)
    }

    fn change_project(&self, from: Project, to: Project) -> StoreFuture<'_, Changed> {
        self.watch(self.store.change_project(from, to), |changed| *changed == Changed::Yes)
    }

    fn change_branch(&self, id: &str, from: Branch, to: Branch) -> StoreFuture<'_, Changed> {
        self.watch(self.store.change_branch(id, from, to), |changed| *changed == Changed::Yes)
    }

    fn change_node(&self, id: &str, from: NodeFacts, to: NodeFacts) -> StoreFuture<'_, Changed> {
        self.watch(self.store.change_node(id, from, to), |changed| *changed == Changed::Yes)
    }

    fn node_facts(&self, ids: &[String]) -> StoreFuture<'_, Vec<(String, NodeFacts)>> {
        self.store.node_facts(ids)
    }

    fn project_nodes(&self, project: &str, page: Page) -> StoreFuture<'_, Vec<Node>> {
        self.store.project_nodes(project, page)
    }

    fn count_nodes(&self, project: &str) -> StoreFuture<'_, u64> {
        self.store.count_nodes(project)
    }
}

impl RunStore for WatchedStore {
    fn run(&self, id: &str) -> StoreFuture<'_, Option<Run>> {
        self.store.run(id)
    }

    fn named_run(&self, owner: &str, scope: &str, name: &str) -> StoreFuture<'_, Option<Run>> {
        self.store.named_run(owner, scope, name)
    }

    fn runs(&self, owner: &str, scope: &str, limit: usize) -> StoreFuture<'_, Vec<Run>> {
        self.store.runs(owner, scope, limit)
    }

    fn active_runs(&self, references: &[String]) -> StoreFuture<'_, Vec<Run>> {
        self.store.active_runs(references)
    }

    fn beat(&self, instance: &str) -> StoreFuture<'_, ()> {
        self.watch(self.store.beat(instance), |()| true)
    }

    fn abandoned(&self, instance: &str, silent: Duration) -> StoreFuture<'_, Vec<Run>> {
        self.store.abandoned(instance, silent)
    }

    fn take_over(&self, id: &str, epoch: u64, instance: &str) -> StoreFuture<'_, Option<u64>> {
        self.watch(self.store.take_over(id, epoch, instance), Option::is_some)
    }

    fn log(&self, pieces: Vec<LogPiece>) -> StoreFuture<'_, Vec<bool>> {
        self.watch(self.store.log(pieces), |written| written.contains(&true))
    }

    fn logged(&self, run: &str, after: Option<u64>, limit: usize) -> StoreFuture<'_, Vec<Piece>> {
        self.store.logged(run, after, limit)
    }

    fn log_outline(&self, run: &str, before: u64) -> StoreFuture<'_, Vec<Piece>> {
        self.store.log_outline(run, before)
    }

    fn last_logged(&self, run: &str) -> StoreFuture<'_, Option<u64>> {
        self.store.last_logged(run)
    }

    fn costs(&self, project: &str, room: Option<&str>) -> StoreFuture<'_, Vec<CostSum>> {
        self.store.costs(project, room)
    }

    fn ask_stop(&self, id: &str) -> StoreFuture<'_, bool> {
        self.watch(self.store.ask_stop(id), |is_running| *is_running)
    }

    fn asked_stops(&self, instance: &str) -> StoreFuture<'_, Vec<String>> {
        self.store.asked_stops(instance)
    }

    fn record_reader(&self, id: &str) -> StoreFuture<'_, ()> {
        // Nothing is written if the run has ended meanwhile, so success says nothing about the store.
        self.watch(self.store.record_reader(id), |()| false)
    }

    fn last_read(&self, id: &str) -> StoreFuture<'_, Option<Duration>> {
        self.store.last_read(id)
    }

    fn remove_run(&self, id: &str) -> StoreFuture<'_, bool> {
        self.watch(self.store.remove_run(id), |removed| *removed)
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }
}

impl RoomStore for WatchedStore {
    fn add_channel(&self, channel: Channel) -> StoreFuture<'_, bool> {
        self.watch(self.store.add_channel(channel), |added| *added)
    }

    fn change_channel(&self, from: Channel, to: Channel) -> StoreFuture<'_, Changed> {
        self.watch(self.store.change_channel(from, to), |changed| *changed == Changed::Yes)
    }

    fn channel(&self, owner: &str, id: &str) -> StoreFuture<'_, Option<Channel>> {
        self.store.channel(owner, id)
    }

    fn channels(&self, owner: &str, page: Page) -> StoreFuture<'_, Vec<Channel>> {
        self.store.channels(owner, page)
    }

    fn remove_channel(&self, owner: &str, id: &str) -> StoreFuture<'_, bool> {
        self.watch(self.store.remove_channel(owner, id), |removed| *removed)
    }

    fn add_room(&self, room: Room) -> StoreFuture<'_, ()> {
        self.watch(self.store.add_room(room), |()| true)
    }

    fn change_room(&self, room: Room) -> StoreFuture<'_, Changed> {
        self.watch(self.store.change_room(room), |changed| *changed == Changed::Yes)
    }

    fn room(&self, id: &str) -> StoreFuture<'_, Option<Room>> {
        self.store.room(id)
    }

    fn rooms(&self, owner: &str, page: Page) -> StoreFuture<'_, Vec<Room>> {
        self.store.rooms(owner, page)
    }

    fn remove_room(&self, id: &str) -> StoreFuture<'_, bool> {
        self.watch(self.store.remove_room(id), |removed| *removed)
    }

    fn room_log(&self, room: &str, after: u64, limit: usize) -> StoreFuture<'_, Vec<RoomEntry>> {
        self.store.room_log(room, after, limit)
    }

    fn named_entry(&self, room: &str, name: &str) -> StoreFuture<'_, Option<RoomEntry>> {
        self.store.named_entry(room, name)
    }

    fn last_entry(&self, room: &str) -> StoreFuture<'_, u64> {
        self.store.last_entry(room)
    }

    fn room_news(&self, rooms: &[String]) -> StoreFuture<'_, Vec<RoomNews>> {
        self.store.room_news(rooms)
    }

    fn put_delivery(&self, delivery: Delivery) -> StoreFuture<'_, ()> {
        self.watch(self.store.put_delivery(delivery), |()| true)
    }

    fn delivery(&self, id: &str) -> StoreFuture<'_, Option<Delivery>> {
        self.store.delivery(id)
    }

    fn take_due(&self, now: u64, until: u64, limit: usize) -> StoreFuture<'_, Vec<Delivery>> {
        self.watch(self.store.take_due(now, until, limit), |taken| !taken.is_empty())
    }

    fn dead_deliveries(&self, room: &str, page: Page) -> StoreFuture<'_, Vec<Delivery>> {
        self.store.dead_deliveries(room, page)
    }

    fn remove_delivery(&self, id: &str) -> StoreFuture<'_, bool> {
        self.watch(self.store.remove_delivery(id), |removed| *removed)
    }
}

impl MemberStore for WatchedStore {
    fn put_member(&self, member: Member, key_check: Option<String>) -> StoreFuture<'_, bool> {
        self.watch(self.store.put_member(member, key_check), |written| *written)
    }

    fn member(&self, project: &str, user: &str) -> StoreFuture<'_, Option<Member>> {
        self.store.member(project, user)
    }

    fn members(&self, project: &str) -> StoreFuture<'_, Vec<Member>> {
        self.store.members(project)
    }

    fn remove_member(&self, project: &str, user: &str) -> StoreFuture<'_, bool> {
        self.watch(self.store.remove_member(project, user), |removed| *removed)
    }

    fn change_key(&self, change: KeyChange) -> StoreFuture<'_, bool> {
        self.watch(self.store.change_key(change), |changed| *changed)
    }
}

impl UserStore for WatchedStore {
    fn add_user(&self, user: User) -> StoreFuture<'_, bool> {
        self.watch(self.store.add_user(user), |added| *added)
    }

    fn add_first_user(&self, user: User) -> StoreFuture<'_, bool> {
        self.watch(self.store.add_first_user(user), |added| *added)
    }

    fn user(&self, id: &str) -> StoreFuture<'_, Option<User>> {
        self.store.user(id)
    }

    fn user_named(&self, unique_name: &str) -> StoreFuture<'_, Option<User>> {
        self.store.user_named(unique_name)
    }

    fn has_users(&self) -> StoreFuture<'_, bool> {
        self.store.has_users()
    }

    fn change_credentials(&self, change: CredentialChange) -> StoreFuture<'_, bool> {
        self.watch(self.store.change_credentials(change), |changed| *changed)
    }

    fn add_session(&self, session: UserSession) -> StoreFuture<'_, ()> {
        self.watch(self.store.add_session(session), |()| true)
    }

    fn session(&self, token: TokenHash) -> StoreFuture<'_, Option<UserSession>> {
        self.store.session(token)
    }

    fn remove_session(&self, token: TokenHash) -> StoreFuture<'_, bool> {
        self.watch(self.store.remove_session(token), |removed| *removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn watched_store_passes_the_suite() {
        let store = Arc::new(crate::in_memory::InMemory::default());
        let health = Arc::new(StoreHealth::new("test"));
        crate::suite::check_store(&WatchedStore::new(store, health)).await;
    }
}
