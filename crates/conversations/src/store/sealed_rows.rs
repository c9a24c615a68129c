//! All sealed values of a database, row by row, for `throughline keys`. Nothing is decoded here, so
//! that a damaged row can still be named.

use std::fmt::Debug;

use throughline_gateway::thinking::store::StoreFuture;

/// A table with sealed values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SealedTable {
    /// Titles and settings of projects.
    Project,
    /// Nodes of projects, stored responses and turns of threads.
    Node,
    /// The providers' replies.
    RawResponse,
    /// Conversations of the Responses dialect, threads, and branches.
    Reference,
    /// Runs.
    Run,
    /// The logs of runs.
    Log,
    /// Channels.
    Channel,
    /// Rooms.
    Room,
    /// The logs of rooms.
    RoomLog,
    /// Calls of webhooks.
    Delivery,
    /// Turns in the vault.
    VaultRecord,
}

impl SealedTable {
    /// The tables of conversations.
    pub const CONVERSATIONS: [Self; 10] = [
        Self::Project,
        Self::Node,
        Self::RawResponse,
        Self::Reference,
        Self::Run,
        Self::Log,
        Self::Channel,
        Self::Room,
        Self::RoomLog,
        Self::Delivery,
    ];

    /// The name in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Node => "node",
            Self::RawResponse => "raw_response",
            Self::Reference => "reference",
            Self::Run => "run",
            Self::Log => "log",
            Self::Channel => "channel",
            Self::Room => "room",
            Self::RoomLog => "room_log",
            Self::Delivery => "delivery",
            Self::VaultRecord => "vault_record",
        }
    }

    /// The columns with bytes, in the order of [`SealedRow::values`].
    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Node => &["sealed", "encrypted_thinking_content", "encrypted_thinking_signature"],
            Self::RawResponse => &["raw_response"],
            Self::VaultRecord => &["sealed", "names"],
            Self::Project
            | Self::Reference
            | Self::Run
            | Self::Log
            | Self::Channel
            | Self::Room
            | Self::RoomLog
            | Self::Delivery => &["sealed"],
        }
    }
}

/// Identifies a row of a table. Rows are read in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowId {
    /// The id. Empty for records of the vault, and with its owner for a channel.
    pub id: String,
    /// The number of an entry of a room's log, of the first entry of a piece of a run's log, or of a
    /// record of the vault. Else 0.
    pub number: u64,
}

/// A row as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealedRow {
    /// Which row.
    pub id: RowId,
    /// What it belongs to: the project of a node or a room, the scope of a run.
    pub scope: Option<String>,
    /// The facts of a project, as JSON.
    pub facts: Option<String>,
    /// The bytes of each column.
    pub values: Vec<Option<Vec<u8>>>,
}

/// Which rows to read.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// The first rows after this one, at most `limit`.
    After {
        /// The row before.
        row: &'a RowId,
        /// How many.
        limit: usize,
    },
    /// The same, but only the first bytes of each value, which name the key.
    HeadsAfter {
        /// The row before.
        row: &'a RowId,
        /// How many.
        limit: usize,
    },
    /// The same, without any value.
    IdsAfter {
        /// The row before.
        row: &'a RowId,
        /// How many.
        limit: usize,
    },
    /// This row.
    At(&'a RowId),
}

/// A database whose sealed values can be read row by row.
pub trait SealedRows: Debug + Send + Sync {
    /// The tables that it has.
    fn tables(&self) -> &'static [SealedTable];
    /// The number of rows of a table.
    fn count(&self, table: SealedTable) -> StoreFuture<'_, u64>;
    /// Reads rows, in order.
    fn read(&self, table: SealedTable, rows: Rows<'_>) -> StoreFuture<'_, Vec<SealedRow>>;
}
