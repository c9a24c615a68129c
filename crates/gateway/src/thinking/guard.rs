//! The prefix guard: whether a block still stands where it was made.

use throughline_canonical::Prefix;

use crate::backend::Backend;
use crate::catalog::Model;
use crate::gateway::Gateway;

/// Why thinking is bound to its conversation at a target, if it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It is not.
    Off,
    /// The catalog says so of the model.
    Known,
    /// The backend once refused a block because of it.
    Learnt,
}

/// What is remembered of where a block stood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixRecord {
    /// What it was made under, if known.
    pub made: Option<Prefix>,
    /// What it stood under when a provider dropped it, if one did.
    pub dropped: Option<Prefix>,
}

impl Guard {
    /// Whether a block probably does not hold under this prefix. `tried` says that nobody knows it.
    pub(crate) fn is_stale(self, stands: Prefix, prefix_record: PrefixRecord, tried: bool) -> bool {
        match prefix_record.made {
            _ if self == Self::Off => false,
            _ if prefix_record.dropped == Some(stands) => true,
            Some(made) => made != stands,
            // Made before anybody knew that this backend binds its blocks.
            None => self == Self::Learnt && !tried,
        }
    }
}

impl Gateway {
    /// Whether a model there binds its thinking.
    pub(crate) fn guard(&self, backend: &Backend, model: &Model) -> Guard {
        if self.binds(&backend.name) {
            Guard::Learnt
        } else if model.preserved {
            Guard::Known
        } else {
            Guard::Off
        }
    }
}
