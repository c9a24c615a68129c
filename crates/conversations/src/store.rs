//! The trait of a durable conversation store.
//!
//! A conversation is a tree of nodes. Each node holds what one turn added and names the node before
//! it, so continuing from an older node copies nothing. A reference points to the newest node of a
//! conversation and moves with it. While a node is being written, its log holds the events so far.
//! Contents are sealed before they come here: a store sees only ids, owners and times.

use std::fmt::Debug;

use throughline_gateway::thinking::store::StoreFuture;

/// The owner: a fingerprint of the caller's key.
pub type Owner = String;

/// What one turn added to a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The unique id.
    pub id: String,
    /// The node before it.
    pub parent: Option<String>,
    /// The owner.
    pub owner: Owner,
    /// When it was created, in milliseconds since 1970.
    pub created: u64,
    /// When it expires, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// Whether it is still being written.
    pub open: bool,
    /// Ids of items inside it, by which it can also be found.
    pub names: Vec<String>,
    /// The sealed content.
    pub sealed: Vec<u8>,
}

/// Points to the newest node of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The unique id.
    pub id: String,
    /// The owner.
    pub owner: Owner,
    /// The newest node. `None` before the first one.
    pub head: Option<String>,
    /// When it was created, in milliseconds since 1970.
    pub created: u64,
    /// When it expires, in milliseconds since 1970. Every move extends it.
    pub expires: Option<u64>,
    /// The sealed content.
    pub sealed: Vec<u8>,
}

/// Moves a reference to a new node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The reference's id.
    pub reference: String,
    /// The node that it must point to. Otherwise nothing is written.
    pub from: Option<String>,
}

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The number of its first entry. Numbers start anywhere and have no gaps.
    pub first: u64,
    /// The number of its last entry.
    pub last: u64,
    /// The entries, sealed.
    pub sealed: Vec<u8>,
}

/// A durable store of conversations.
pub trait Store: Debug + Send + Sync + 'static {
    /// Writes a node, and replaces one with the same id. With a move, the reference then points to
    /// the node, both or neither. Returns whether it was written. The nodes before it and the
    /// reference then live at least as long as the node.
    fn put(&self, node: Node, moves: Option<Move>) -> StoreFuture<'_, bool>;
    /// Reads a node.
    fn node(&self, id: &str) -> StoreFuture<'_, Option<Node>>;
    /// The newest node of this owner that has this name, or else of any owner.
    fn named(&self, owner: &str, name: &str) -> StoreFuture<'_, Option<Node>>;
    /// A node and those before it, oldest first, at most `most`. A missing node ends the path; then
    /// the first node has a parent.
    fn path(&self, id: &str, most: usize) -> StoreFuture<'_, Vec<Node>>;
    /// Removes a node and its log. Returns whether there was one.
    fn remove(&self, id: &str) -> StoreFuture<'_, bool>;
    /// The nodes that are still being written.
    fn open_nodes(&self) -> StoreFuture<'_, Vec<Node>>;
    /// Writes a reference, and replaces the content of one with the same id. Its head and expiry
    /// stay.
    fn put_reference(&self, reference: Reference) -> StoreFuture<'_, ()>;
    /// Reads a reference.
    fn reference(&self, id: &str) -> StoreFuture<'_, Option<Reference>>;
    /// Removes a reference but not its nodes. Returns whether there was one.
    fn remove_reference(&self, id: &str) -> StoreFuture<'_, bool>;
    /// Adds a piece to a node's log.
    fn log(&self, node: &str, piece: Piece) -> StoreFuture<'_, ()>;
    /// The pieces of a node's log with entries after this number, in order.
    fn logged(&self, node: &str, after: Option<u64>) -> StoreFuture<'_, Vec<Piece>>;
    /// Removes expired nodes and references, then the oldest nodes until at most this many sealed
    /// bytes are left in nodes and logs. Nodes that are still being written stay. Returns how many
    /// were removed.
    fn trim(&self, now: u64, bytes: u64) -> StoreFuture<'_, u64>;
    /// Checks that a write succeeds now, with a write that does not change the content.
    fn check_write(&self) -> StoreFuture<'_, ()>;
}
