//! Breakpoints for the provider's prompt cache: where a prefix of the prompt ends that is worth keeping.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How long the provider is asked to keep a prefix after its last use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheTime {
    /// Some minutes, which is what providers do if they are not asked.
    #[default]
    #[serde(rename = "5m")]
    Minutes,
    /// An hour.
    #[serde(rename = "1h")]
    Hour,
}

/// The part of a request after which a prefix ends. Places are ordered as prompts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "place", rename_all = "snake_case")]
pub enum CachePlace {
    /// A tool.
    Tool {
        /// Its index among the tools.
        index: usize,
    },
    /// A system text before the conversation.
    System {
        /// Its index among the system texts.
        index: usize,
    },
    /// A block of a message.
    Block {
        /// The index of the message.
        message: usize,
        /// The index of the block in the message.
        block: usize,
    },
    /// Everything, wherever that ends.
    End,
}

/// The breakpoints of a request. In JSON they are a list:
/// `[{"place":"tool","index":3},{"place":"block","message":6,"block":0,"keep":"1h"}]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheBreakpoints {
    breakpoints: BTreeMap<CachePlace, CacheTime>,
}

impl CacheBreakpoints {
    /// Whether there is no breakpoint.
    pub fn is_empty(&self) -> bool {
        self.breakpoints.is_empty()
    }

    /// Adds a breakpoint. A later breakpoint at the same place replaces an earlier one.
    pub fn add(&mut self, position: CachePlace, time: CacheTime) {
        self.breakpoints.insert(position, time);
    }

    /// The breakpoint at a place.
    pub fn at(&self, position: CachePlace) -> Option<CacheTime> {
        self.breakpoints.get(&position).copied()
    }

    /// The breakpoint at a block of a message.
    pub fn at_block(&self, message: usize, block: usize) -> Option<CacheTime> {
        self.at(CachePlace::Block { message, block })
    }

    /// All breakpoints, in the order of the prompt.
    pub fn iter(&self) -> impl Iterator<Item = (CachePlace, CacheTime)> {
        self.breakpoints.iter().map(|(position, time)| (*position, *time))
    }

    /// Keeps the last breakpoints. Returns whether any was removed.
    pub fn keep_last(&mut self, most: usize) -> bool {
        let too_many = self.breakpoints.len().saturating_sub(most);
        for _ in 0..too_many {
            self.breakpoints.pop_first();
        }
        too_many > 0
    }
}

impl FromIterator<(CachePlace, CacheTime)> for CacheBreakpoints {
    fn from_iter<T: IntoIterator<Item = (CachePlace, CacheTime)>>(breakpoints: T) -> Self {
        Self { breakpoints: breakpoints.into_iter().collect() }
    }
}

/// A breakpoint in JSON.
#[derive(Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    position: CachePlace,
    #[serde(default, skip_serializing_if = "is_usual")]
    keep: CacheTime,
}

fn is_usual(time: &CacheTime) -> bool {
    *time == CacheTime::Minutes
}

impl Serialize for CacheBreakpoints {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(|(position, keep)| Entry { position, keep }))
    }
}

impl<'de> Deserialize<'de> for CacheBreakpoints {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let breakpoints = Vec::<Entry>::deserialize(deserializer)?;
        Ok(breakpoints
            .into_iter()
            .map(|breakpoint| (breakpoint.position, breakpoint.keep))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakpoints_are_read_and_written_in_the_order_of_the_prompt() {
        let written = r#"[{"place":"tool","index":3},{"place":"system","index":0,"keep":"1h"},{"place":"block","message":6,"block":0},{"place":"end"}]"#;
        let mut breakpoints: CacheBreakpoints = serde_json::from_str(written).unwrap();
        assert_eq!(serde_json::to_string(&breakpoints).unwrap(), written);
        assert_eq!(breakpoints.at(CachePlace::System { index: 0 }), Some(CacheTime::Hour));
        assert_eq!(breakpoints.at_block(6, 0), Some(CacheTime::Minutes));
        assert_eq!(breakpoints.at_block(6, 1), None);
        assert!(breakpoints.keep_last(2) && !breakpoints.keep_last(2));
        assert_eq!(
            serde_json::to_string(&breakpoints).unwrap(),
            r#"[{"place":"block","message":6,"block":0},{"place":"end"}]"#
        );
    }
}
