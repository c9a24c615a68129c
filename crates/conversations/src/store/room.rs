//! Rooms: live places on a branch, with the channels that are bound to them.

use super::node::Owner;

/// A member that many rooms can have: an AI with its model and prompt, or a transport.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    /// The id that the owner chose. It is unique among the channels of the owner.
    pub id: String,
    /// The owner.
    pub owner: Owner,
    /// When it was created, in milliseconds since 1970.
    pub created: u64,
    /// The sealed content.
    pub sealed: Vec<u8>,
}

/// A room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The unique id. Ids sort by the time they were made.
    pub id: String,
    /// The owner.
    pub owner: Owner,
    /// The project that has its messages.
    pub project: String,
    /// The id of the branch that has them.
    pub branch: String,
    /// When it was created, in milliseconds since 1970.
    pub created: u64,
    /// Rises with each change.
    pub version: u64,
    /// The sealed content.
    pub sealed: Vec<u8>,
}

/// An entry of the log of a room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoomEntry {
    /// The room.
    pub room: String,
    /// The number. The first entry has 1, and there are no gaps.
    pub number: u64,
    /// A name that no other entry of the room has, so that nothing is written twice.
    pub name: Option<String>,
    /// The sealed content.
    pub sealed: Vec<u8>,
}

/// What can be new in a room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoomNews {
    /// The room.
    pub room: String,
    /// The number of the last entry of its log. 0 if there is none.
    pub last: u64,
    /// The runs of its project that are under way, by id.
    pub runs: Vec<String>,
}

/// A call of a webhook that has not succeeded yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// The unique id, which the receiver sees too.
    pub id: String,
    /// The room.
    pub room: String,
    /// How often it was tried.
    pub attempts: u64,
    /// When it is tried next, in milliseconds since 1970. `None` if it is not tried any more.
    pub due: Option<u64>,
    /// The sealed content.
    pub sealed: Vec<u8>,
}
