//! What a durable store of conversations must do.
//!
//! A conversation is a tree of nodes: each holds what one turn added and knows the node it follows, so
//! that going on from an older one copies nothing. A reference stands for the newest node of a line and
//! moves on with it. While a node is being written, its log holds what has arrived so far. Everything a
//! person wrote is sealed before it comes here; a store sees ids, owners and times.

use std::fmt::Debug;

use throughline_gateway::thinking::store::StoreFuture;

/// Whose a thing is: a mark of the caller's key, from which the key cannot be told.
pub type Owner = String;

/// What one turn added to a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its id; no other node has it.
    pub id: String,
    /// The node it follows.
    pub parent: Option<String>,
    /// Whose it is.
    pub owner: Owner,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
    /// When it may be forgotten, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// Whether it is still being written.
    pub open: bool,
    /// Ids of things inside it, by which it can be found too.
    pub names: Vec<String>,
    /// What was said, sealed.
    pub sealed: Vec<u8>,
}

/// What stands for the newest node of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Its id; no other reference has it.
    pub id: String,
    /// Whose it is.
    pub owner: Owner,
    /// The newest node; none before the first.
    pub head: Option<String>,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
    /// When it may be forgotten, in milliseconds since 1970, if it does not move on before.
    pub expires: Option<u64>,
    /// What is said of it, sealed.
    pub sealed: Vec<u8>,
}

/// A reference moves on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which.
    pub reference: String,
    /// Where it must stand; elsewhere it stays, and nothing is written.
    pub from: Option<String>,
}

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The number of its first entry; numbers begin where the writer likes and have no gaps.
    pub first: u64,
    /// The number of its last entry.
    pub last: u64,
    /// The entries, sealed.
    pub sealed: Vec<u8>,
}

/// A durable store of conversations.
pub trait Store: Debug + Send + Sync + 'static {
    /// Writes a node, over one of the same id if there is one. With a move, the reference comes to
    /// stand at the node, both or neither. Answers whether it was written. What the node follows, and the
    /// reference, live as long as the node itself.
    fn put(&self, node: Node, moves: Option<Move>) -> StoreFuture<'_, bool>;
    /// Reads a node.
    fn node(&self, id: &str) -> StoreFuture<'_, Option<Node>>;
    /// The newest node of this owner that holds something of this name, or else of anybody.
    fn named(&self, owner: &str, name: &str) -> StoreFuture<'_, Option<Node>>;
    /// A node and those it follows, the oldest first, no more than so many. One that is missing ends the
    /// way: then the first has a parent.
    fn path(&self, id: &str, most: usize) -> StoreFuture<'_, Vec<Node>>;
    /// Forgets a node and its log. Answers whether there was one.
    fn remove(&self, id: &str) -> StoreFuture<'_, bool>;
    /// The nodes that are still being written.
    fn open_nodes(&self) -> StoreFuture<'_, Vec<Node>>;
    /// Writes a reference, over one of the same id if there is one; where it stands and how long it
    /// lives are left alone then.
    fn put_reference(&self, reference: Reference) -> StoreFuture<'_, ()>;
    /// Reads a reference.
    fn reference(&self, id: &str) -> StoreFuture<'_, Option<Reference>>;
    /// Forgets a reference; its nodes stay. Answers whether there was one.
    fn remove_reference(&self, id: &str) -> StoreFuture<'_, bool>;
    /// Adds to a node's log.
    fn log(&self, node: &str, piece: Piece) -> StoreFuture<'_, ()>;
    /// The pieces of a node's log that hold anything behind this number, in order.
    fn logged(&self, node: &str, after: Option<u64>) -> StoreFuture<'_, Vec<Piece>>;
    /// Forgets nodes and references that have expired by now, then the oldest nodes until no more than so many bytes are
    /// sealed in nodes and logs. Nodes still being written stay. Answers how many went.
    fn trim(&self, now: u64, bytes: u64) -> StoreFuture<'_, u64>;
}
