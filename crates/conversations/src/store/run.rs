//! Runs: replies that are being written, with a log of their events.

use serde::{Deserialize, Serialize};
use throughline_canonical::Cost;
use utoipa::ToSchema;

use super::node::{Move, Node, Owner, Reference};
use super::room::RoomEntry;

/// A reply that is being written, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The unique id. It is never used again.
    pub id: String,
    /// The owner.
    pub owner: Owner,
    /// What it belongs to, such as `project:ID` or `ag_ui:THREAD`.
    pub scope: String,
    /// The caller's name for it. A scope has at most one run of a name.
    pub name: Option<String>,
    /// The reference that its answer moves. A reference has at most one run in progress.
    pub reference: Option<String>,
    /// The server process that writes it.
    pub instance: String,
    /// Rises when another process takes over. Only the newest epoch may write.
    pub epoch: u64,
    /// Whether it is in progress, or how it ended.
    pub status: RunStatus,
    /// When it was created, in milliseconds since 1970.
    pub created: u64,
    /// When it is forgotten, in milliseconds since 1970. A run in progress stays.
    pub expires: Option<u64>,
    /// The sealed content.
    pub sealed: Vec<u8>,
}

/// Whether a run is in progress, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// It is in progress.
    Running,
    /// The answer is complete.
    Completed,
    /// The caller stopped it.
    Cancelled,
    /// The provider or this server broke off.
    Interrupted,
    /// The provider reported an error.
    Error,
}

impl RunStatus {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Running, Self::Completed, Self::Cancelled, Self::Interrupted, Self::Error];

    /// The name in databases and replies.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Error => "error",
        }
    }

    /// Reads a name.
    pub fn read(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// The run.
    pub run: String,
    /// The epoch of the writer.
    pub epoch: u64,
    /// How it ended.
    pub status: RunStatus,
    /// When it is forgotten, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// The sealed content, which replaces the one before.
    pub sealed: Vec<u8>,
}

/// The key under which the contents of a commit are sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedUnder {
    /// The project.
    pub project: String,
    /// The check of its key.
    pub key_check: String,
}

/// Changes that are written together, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// The project must still have this key. It cannot change until the commit is written.
    pub sealed_under: Option<SealedUnder>,
    /// New nodes. A node with a known id replaces it.
    pub nodes: Vec<Node>,
    /// A new branch or reference.
    pub reference: Option<Reference>,
    /// The reference that moves. Only the run in progress on it may move it, if there is one.
    pub moves: Option<Move>,
    /// A run that starts.
    pub start: Option<Run>,
    /// A run that ends.
    pub end: Option<RunEnd>,
    /// New entries of the logs of rooms. If a room has an entry with the number or the name of one of
    /// them, nothing is written.
    pub entries: Vec<RoomEntry>,
    /// What the run has cost that ends.
    pub cost: Option<RunCost>,
}

/// What the answer of a run has cost. It stays when the run and its node are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunCost {
    /// The run. It has at most one cost.
    pub run: String,
    /// The project.
    pub project: String,
    /// The room that it was for.
    pub room: Option<String>,
    /// The member of the room that answered.
    pub channel: Option<String>,
    /// The cost. `None` if the provider has reported no tokens.
    pub cost: Option<Cost>,
}

/// What the answers of one member have cost together, or those of no member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CostSum {
    /// The member.
    pub channel: Option<String>,
    /// The sum of what is known.
    pub cost: Cost,
    /// How many answers there are.
    pub answers: u64,
    /// How many of them have tokens without a known price, or no token counts.
    pub unpriced_answers: u64,
}

impl CostSum {
    /// Adds an answer.
    pub fn add(&mut self, cost: Option<Cost>) {
        self.answers += 1;
        self.unpriced_answers += u64::from(cost.is_none_or(|cost| cost.unpriced_tokens > 0));
        self.cost = self.cost.plus(cost.unwrap_or_default());
    }
}

/// The result of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was written.
    Written,
    /// The reference points to another node, or does not exist, or a log has an entry of this number.
    /// Nothing was written.
    Stale,
    /// Another run is in progress on the reference. Nothing was written.
    Busy {
        /// The run.
        run: String,
    },
    /// The scope has a run of this name. Nothing was written.
    Repeated {
        /// The run.
        run: String,
    },
    /// There is such a reference, the project has a branch of this name, or a room an entry. Nothing was
    /// written.
    NameTaken,
    /// Another process has taken the run over, or it has ended. Nothing was written.
    Fenced,
    /// The project has another key, or does not exist. Nothing was written.
    KeyChanged,
}

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The number of its first entry. Numbers have no gaps.
    pub first: u64,
    /// The number of its last entry.
    pub last: u64,
    /// Whether its entries only continue texts. A reader that resumes after it does not need it.
    pub continues: bool,
    /// The entries, sealed.
    pub sealed: Vec<u8>,
}

/// A piece for the log of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPiece {
    /// The run.
    pub run: String,
    /// The epoch of the writer.
    pub epoch: u64,
    /// The piece.
    pub piece: Piece,
}
