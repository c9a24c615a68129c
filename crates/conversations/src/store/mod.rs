//! The traits of a durable conversation store.
//!
//! A conversation is a tree of nodes. Each node holds what one turn added and names the node before
//! it, so continuing from an older node copies nothing. A reference points to the newest node of a
//! line and moves with it; the branches of a project are references with a name. A run is a reply
//! that is being written: its log holds the events so far. Contents are sealed before they come
//! here: a store sees only ids, owners, times and the facts that need no key.
//!
//! The types are in [`node`], [`project`], [`run`], [`room`], [`user`] and [`member`]. A [`Commit`] has the
//! changes that are written together. [`sealed_rows`] reads all sealed values, whatever they are.

use std::borrow::Cow;
use std::fmt::Debug;
use std::fmt::Write;
use std::time::Duration;

use sha2::{Digest, Sha256};
use throughline_gateway::thinking::store::StoreFuture;

pub mod member;
pub mod node;
pub mod project;
pub mod room;
pub mod run;
pub mod sealed_rows;
pub mod user;

pub use member::{KeyChange, Member};
pub use node::{
    Branch, BranchFacts, Changed, Detail, Move, Node, NodeFacts, NodeRole, NodeStatus, Owner,
    ProjectNode, Reference,
};
pub use project::{Page, PreviousKey, Project, ProjectFacts};
pub use room::{Channel, Delivery, Room, RoomEntry, RoomNews};
pub use run::{
    Commit, CostSum, LogPiece, Outcome, Piece, Run, RunCost, RunEnd, RunStatus, SealedUnder,
};
pub use sealed_rows::{RowId, Rows, SealedRow, SealedRows, SealedTable};
pub use user::{Credential, CredentialChange, TokenHash, User, UserSession};

/// The longest name that is stored as it is, in bytes. Databases cannot find arbitrarily long ones.
pub const MAX_STORED_NAME: usize = 500;

/// A name that a client chose, as it is stored: itself, or its hash if it is too long or has characters
/// that not every database stores.
pub fn bounded_name(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_STORED_NAME && !name.contains(char::is_control) {
        return name.into();
    }
    let mut hash = "sha256:".to_owned();
    for byte in Sha256::digest(name.as_bytes()) {
        // Writing to a string cannot fail.
        let _ = write!(hash, "{byte:02x}");
    }
    hash.into()
}

/// The scope of the runs of a project.
pub fn project_scope(project: &str) -> String {
    format!("project:{project}")
}

/// Stores nodes and references.
pub trait NodeStore: Debug + Send + Sync + 'static {
    /// Writes changes together, or none of them. The nodes before a new one and its reference then
    /// live at least as long as the node.
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome>;
    /// Writes a node, and replaces one with the same id. With a move, the reference then points to
    /// the node, both or neither. Returns whether it was written.
    fn put(&self, node: Node, moves: Option<Move>) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let commit = Commit { nodes: vec![node], moves, ..Commit::default() };
            Ok(self.commit(commit).await? == Outcome::Written)
        })
    }
    /// Reads a node.
    fn node(&self, id: &str) -> StoreFuture<'_, Option<Node>>;
    /// The newest node of this owner that has this name, or else of any owner.
    fn named(&self, owner: &str, name: &str) -> StoreFuture<'_, Option<Node>>;
    /// A node and those before it, oldest first, at most `most`. A missing node ends the path; then
    /// the first node has a parent.
    fn path(&self, id: &str, most: usize, detail: Detail) -> StoreFuture<'_, Vec<Node>>;
    /// The ids of a node and of those before it, oldest first, at most `most`.
    fn path_ids(&self, id: &str, most: usize) -> StoreFuture<'_, Vec<String>>;
    /// A page of the path to a node of a project, oldest first. `None` if the node after which the page
    /// starts is not on the path. What comes later on the path costs nothing.
    fn path_page(&self, id: &str, page: Page, detail: Detail)
    -> StoreFuture<'_, Option<Vec<Node>>>;
    /// The sealed reply of the provider, of a node of a project.
    fn raw(&self, id: &str) -> StoreFuture<'_, Option<Vec<u8>>>;
    /// Removes a node, its log and its provider's reply. Returns whether there was one.
    fn remove(&self, id: &str) -> StoreFuture<'_, bool>;
    /// Writes a reference, and replaces the content of one with the same id. Its head and expiry
    /// stay.
    fn put_reference(&self, reference: Reference) -> StoreFuture<'_, ()>;
    /// Reads a reference.
    fn reference(&self, id: &str) -> StoreFuture<'_, Option<Reference>>;
    /// Removes a reference but not its nodes. Returns whether there was one.
    fn remove_reference(&self, id: &str) -> StoreFuture<'_, bool>;
    /// Removes expired nodes, references, runs and sessions, then the oldest nodes until at most this
    /// many sealed bytes are left in nodes and their logs. Nodes of projects and nodes that are still
    /// being written stay. Returns how many were removed.
    fn trim(&self, now: u64, bytes: u64) -> StoreFuture<'_, u64>;
    /// Checks that a write succeeds now, with a write that does not change the content.
    fn check_write(&self) -> StoreFuture<'_, ()>;
}

/// Stores projects.
pub trait ProjectStore: Debug + Send + Sync + 'static {
    /// Writes a project, and replaces one with the same id.
    fn put_project(&self, project: Project) -> StoreFuture<'_, ()>;
    /// The check of the key of each of these projects that exists.
    fn key_checks(&self, ids: &[String]) -> StoreFuture<'_, Vec<(String, Option<String>)>>;
    /// Replaces the facts and the content of a project, if they are still those of `from`.
    fn change_project(&self, from: Project, to: Project) -> StoreFuture<'_, Changed>;
    /// Reads a project.
    fn project(&self, id: &str) -> StoreFuture<'_, Option<Project>>;
    /// Projects of an owner, newest first, deleted or not. Those that others share with the owner are
    /// among them until they are deleted.
    fn projects(&self, owner: &str, deleted: bool, page: Page) -> StoreFuture<'_, Vec<Project>>;
    /// Removes a project with its branches, nodes and runs. Returns whether there was one.
    fn remove_project(&self, id: &str) -> StoreFuture<'_, bool>;
    /// The branches of a project, in the order in which they were made.
    fn branches(&self, project: &str) -> StoreFuture<'_, Vec<Reference>>;
    /// Replaces the name and the facts of a branch, if they are still those of `from`.
    fn change_branch(&self, id: &str, from: Branch, to: Branch) -> StoreFuture<'_, Changed>;
    /// Replaces the facts of a node of a project, if they are still those of `from`.
    fn change_node(&self, id: &str, from: NodeFacts, to: NodeFacts) -> StoreFuture<'_, Changed>;
    /// The facts of those of these nodes that belong to a project, by their id.
    fn node_facts(&self, ids: &[String]) -> StoreFuture<'_, Vec<(String, NodeFacts)>>;
    /// Nodes of a project, in the order in which they were made.
    fn project_nodes(&self, project: &str, page: Page) -> StoreFuture<'_, Vec<Node>>;
    /// The number of nodes of a project.
    fn count_nodes(&self, project: &str) -> StoreFuture<'_, u64>;
}

/// Stores runs and their logs.
pub trait RunStore: Debug + Send + Sync + 'static {
    /// Reads a run.
    fn run(&self, id: &str) -> StoreFuture<'_, Option<Run>>;
    /// The run of this owner and scope with this name.
    fn named_run(&self, owner: &str, scope: &str, name: &str) -> StoreFuture<'_, Option<Run>>;
    /// Runs of this owner and scope, newest first, at most `limit`.
    fn runs(&self, owner: &str, scope: &str, limit: usize) -> StoreFuture<'_, Vec<Run>>;
    /// The run in progress on each of these references.
    fn active_runs(&self, references: &[String]) -> StoreFuture<'_, Vec<Run>>;
    /// Records that an instance is alive now. The store's own clock counts.
    fn beat(&self, instance: &str) -> StoreFuture<'_, ()>;
    /// Runs in progress of other instances that have been silent for at least this long.
    fn abandoned(&self, instance: &str, silent: Duration) -> StoreFuture<'_, Vec<Run>>;
    /// Makes an instance the writer of a run, if the run is in progress under this epoch. Returns
    /// the new epoch.
    fn take_over(&self, id: &str, epoch: u64, instance: &str) -> StoreFuture<'_, Option<u64>>;
    /// Adds pieces to logs, all or none. Pieces of a run that is not in progress under their epoch
    /// are left out. Returns for each piece whether it was written.
    fn log(&self, pieces: Vec<LogPiece>) -> StoreFuture<'_, Vec<bool>>;
    /// The first pieces of a log with entries after this number, in order, at most `limit`. What comes
    /// before them costs nothing.
    fn logged(&self, run: &str, after: Option<u64>, limit: usize) -> StoreFuture<'_, Vec<Piece>>;
    /// The pieces of a log that begin before this number, in order, without those that only continue
    /// texts.
    fn log_outline(&self, run: &str, before: u64) -> StoreFuture<'_, Vec<Piece>>;
    /// The number of the last entry of a log.
    fn last_logged(&self, run: &str) -> StoreFuture<'_, Option<u64>>;
    /// Asks the writer of a run to stop. Returns whether the run is in progress.
    fn ask_stop(&self, id: &str) -> StoreFuture<'_, bool>;
    /// The runs in progress of an instance that a client has asked to stop.
    fn asked_stops(&self, instance: &str) -> StoreFuture<'_, Vec<String>>;
    /// Records that a run in progress is read now by a client of an instance that does not write it.
    /// The store's own clock counts.
    fn record_reader(&self, id: &str) -> StoreFuture<'_, ()>;
    /// How long ago such a reader was last recorded.
    fn last_read(&self, id: &str) -> StoreFuture<'_, Option<Duration>>;
    /// What the runs of a project have cost, or those of one of its rooms, for each channel.
    fn costs(&self, project: &str, room: Option<&str>) -> StoreFuture<'_, Vec<CostSum>>;
    /// Removes a run and its log. Returns whether there was one.
    fn remove_run(&self, id: &str) -> StoreFuture<'_, bool>;
    /// Whether other processes may use the same store at the same time.
    fn is_shared(&self) -> bool {
        false
    }
}

/// Stores users and their sessions.
pub trait UserStore: Debug + Send + Sync + 'static {
    /// Adds a user. Returns false if the name is taken.
    fn add_user(&self, user: User) -> StoreFuture<'_, bool>;
    /// Adds a user if there is none yet. Returns false if there is one.
    fn add_first_user(&self, user: User) -> StoreFuture<'_, bool>;
    /// Reads a user.
    fn user(&self, id: &str) -> StoreFuture<'_, Option<User>>;
    /// The user with this unique name.
    fn user_named(&self, unique_name: &str) -> StoreFuture<'_, Option<User>>;
    /// Whether there is any user.
    fn has_users(&self) -> StoreFuture<'_, bool>;
    /// Replaces the credentials of a user and ends the user's other sessions, both or neither.
    /// Returns false if the credential has changed meanwhile, or if there is no such user.
    fn change_credentials(&self, change: CredentialChange) -> StoreFuture<'_, bool>;
    /// Adds a session.
    fn add_session(&self, session: UserSession) -> StoreFuture<'_, ()>;
    /// Reads a session, expired or not.
    fn session(&self, token: TokenHash) -> StoreFuture<'_, Option<UserSession>>;
    /// Ends a session. Returns whether there was one.
    fn remove_session(&self, token: TokenHash) -> StoreFuture<'_, bool>;
}

/// Stores with whom projects are shared.
pub trait MemberStore: Debug + Send + Sync + 'static {
    /// Writes a member, and replaces the wrapped key of one that is known. Returns false if the
    /// project does not exist, or if its key has another check.
    fn put_member(&self, member: Member, key_check: Option<String>) -> StoreFuture<'_, bool>;
    /// Reads a member.
    fn member(&self, project: &str, user: &str) -> StoreFuture<'_, Option<Member>>;
    /// The members of a project, in the order in which they were added.
    fn members(&self, project: &str) -> StoreFuture<'_, Vec<Member>>;
    /// Removes a member. Returns whether there was one.
    fn remove_member(&self, project: &str, user: &str) -> StoreFuture<'_, bool>;
    /// Sets the next key of a project, with the wrapped keys of its members, all or nothing. Returns
    /// false if the project has another key, or if a user is no member.
    fn change_key(&self, change: KeyChange) -> StoreFuture<'_, bool>;
}

/// Stores rooms, their logs, and the channels that can be bound to them. Entries of logs are written
/// with a [`Commit`].
pub trait RoomStore: Debug + Send + Sync + 'static {
    /// Adds a channel. Returns false if the owner has one with this id.
    fn add_channel(&self, channel: Channel) -> StoreFuture<'_, bool>;
    /// Replaces the content of a channel, if it is still that of `from`.
    fn change_channel(&self, from: Channel, to: Channel) -> StoreFuture<'_, Changed>;
    /// Reads a channel.
    fn channel(&self, owner: &str, id: &str) -> StoreFuture<'_, Option<Channel>>;
    /// The channels of an owner, by their id.
    fn channels(&self, owner: &str, page: Page) -> StoreFuture<'_, Vec<Channel>>;
    /// Removes a channel. Returns whether there was one.
    fn remove_channel(&self, owner: &str, id: &str) -> StoreFuture<'_, bool>;
    /// Adds a room.
    fn add_room(&self, room: Room) -> StoreFuture<'_, ()>;
    /// Replaces the content of a room, if it has the version before this one.
    fn change_room(&self, room: Room) -> StoreFuture<'_, Changed>;
    /// Reads a room.
    fn room(&self, id: &str) -> StoreFuture<'_, Option<Room>>;
    /// The rooms of an owner, newest first. Those in projects that are shared with the owner are among
    /// them.
    fn rooms(&self, owner: &str, page: Page) -> StoreFuture<'_, Vec<Room>>;
    /// Removes a room with its log and its deliveries. Its messages stay in the project. Returns whether
    /// there was one.
    fn remove_room(&self, id: &str) -> StoreFuture<'_, bool>;
    /// The first entries of the log of a room after this number, at most `limit`.
    fn room_log(&self, room: &str, after: u64, limit: usize) -> StoreFuture<'_, Vec<RoomEntry>>;
    /// The entry of a room with this name.
    fn named_entry(&self, room: &str, name: &str) -> StoreFuture<'_, Option<RoomEntry>>;
    /// The number of the last entry of a room. 0 if there is none.
    fn last_entry(&self, room: &str) -> StoreFuture<'_, u64>;
    /// What can be new in these rooms, in any order. A room that does not exist is left out.
    fn room_news(&self, rooms: &[String]) -> StoreFuture<'_, Vec<RoomNews>>;
    /// Writes a delivery, and replaces one with the same id.
    fn put_delivery(&self, delivery: Delivery) -> StoreFuture<'_, ()>;
    /// Reads a delivery.
    fn delivery(&self, id: &str) -> StoreFuture<'_, Option<Delivery>>;
    /// Takes deliveries that are due, at most `limit`: no other instance gets them before `until`.
    fn take_due(&self, now: u64, until: u64, limit: usize) -> StoreFuture<'_, Vec<Delivery>>;
    /// The deliveries of a room that are not tried any more, oldest first.
    fn dead_deliveries(&self, room: &str, page: Page) -> StoreFuture<'_, Vec<Delivery>>;
    /// Removes a delivery. Returns whether there was one.
    fn remove_delivery(&self, id: &str) -> StoreFuture<'_, bool>;
}

/// A durable store of conversations.
pub trait Store: NodeStore + ProjectStore + RunStore + UserStore + MemberStore + RoomStore {}

impl<T: NodeStore + ProjectStore + RunStore + UserStore + MemberStore + RoomStore> Store for T {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_odd_names_are_stored_as_a_hash() {
        let longest = "n".repeat(MAX_STORED_NAME);
        for name in ["", "thread-1", "Ü 猫", &longest] {
            assert_eq!(bounded_name(name), name);
        }
        let odd = ["a\0", "a\nb", &format!("{longest}1"), &format!("{longest}2")];
        let stored = odd.map(|name| bounded_name(name).into_owned());
        for (at, name) in stored.iter().enumerate() {
            assert!(name.starts_with("sha256:") && name.len() == 71, "{name}");
            assert!(!stored[..at].contains(name), "{name}");
        }
    }
}
