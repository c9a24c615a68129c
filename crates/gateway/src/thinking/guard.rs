//! The prefix guard: whether the conversation before a block is still the one it was made in. The
//! lanes apply it in `history/prefix_guard` and `plan/outlined/prefix_guard`.

use throughline_canonical::Prefix;

use crate::backend::Backend;
use crate::catalog::Model;
use crate::gateway::Gateway;

/// Whether a target binds thinking to the conversation before it, and how we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It does not.
    Off,
    /// The catalog says that the model does.
    Known,
    /// The backend once refused a block because of it.
    Learnt,
}

/// Where a block is in a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockPosition {
    /// The prefix it follows.
    pub(crate) prefix: Prefix,
    /// Whether it follows a summary that the provider wrote. Such a summary keeps the turns after it
    /// valid, although they were made after other turns.
    pub(crate) after_summary: bool,
    /// Whether its maker is unknown.
    pub(crate) tried: bool,
}

/// What is remembered about a block's prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixRecord {
    /// The prefix it was made after, if known.
    pub made: Option<Prefix>,
    /// The prefix it followed when a provider dropped it, if one did.
    pub dropped: Option<Prefix>,
}

impl Guard {
    /// Whether a block is probably not valid in its position.
    pub(crate) fn is_stale(self, position: BlockPosition, prefix_record: PrefixRecord) -> bool {
        match prefix_record.made {
            _ if self == Self::Off => false,
            _ if prefix_record.dropped == Some(position.prefix) => true,
            Some(made) => made != position.prefix && !position.after_summary,
            // The block was made before it was known that this backend binds its blocks.
            None => self == Self::Learnt && !position.tried,
        }
    }
}

impl Gateway {
    /// Whether a backend binds the thinking of a model.
    pub(crate) fn guard(&self, backend: &Backend, model: &Model) -> Guard {
        if self.binds_thinking(&backend.name) {
            Guard::Learnt
        } else if model.preserved {
            Guard::Known
        } else {
            Guard::Off
        }
    }
}
