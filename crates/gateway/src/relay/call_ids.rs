//! Unique ids for tool calls. Clients identify calls by their ids, and the vault finds turns by
//! them.

use std::borrow::Cow;
use std::collections::HashSet;

use throughline_canonical::{Block, Request};

/// Makes call ids unique within a conversation.
#[derive(Debug)]
pub(crate) struct CallIds {
    used: HashSet<String>,
    identity: String,
    count: usize,
}

impl CallIds {
    /// For the reply to a request. `identity` is unique for each reply.
    pub(crate) fn new(request: &Request, identity: &str) -> Self {
        let blocks = request.messages.iter().flat_map(|message| &message.content);
        let used = blocks.filter_map(|block| match block {
            Block::ToolCall { id, .. } => Some(id.clone()),
            _ => None,
        });
        Self { used: used.collect(), identity: identity.to_owned(), count: 0 }
    }

    /// The provider's id if it is unique and looks random, or else a new one.
    pub(crate) fn unique<'a>(&mut self, id: Cow<'a, str>) -> Cow<'a, str> {
        let id = if looks_random(&id) && !self.used.contains(&*id) {
            id
        } else {
            self.count += 1;
            Cow::Owned(format!("call_{}{}", self.identity, self.count))
        };
        self.used.insert(id.clone().into_owned());
        id
    }
}

/// Whether an id ends in random letters and digits. Servers that have no ids, or that count from
/// zero in every reply, send other ids.
pub(crate) fn looks_random(id: &str) -> bool {
    let tail = id.rsplit(|letter: char| !letter.is_ascii_alphanumeric()).next().unwrap_or_default();
    tail.len() >= 8
        && tail.bytes().any(|byte| byte.is_ascii_digit())
        && tail.bytes().any(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_keeps_random_ids_and_replaces_others() {
        let mut ids = CallIds::new(&Request::default(), "0abc");
        for (given, expected) in [
            ("toolu_01A2b3C4d5", "toolu_01A2b3C4d5"),
            ("call_9f8e7d6c5b", "call_9f8e7d6c5b"),
            ("call_9f8e7d6c5b", "call_0abc1"),
            ("call_0", "call_0abc2"),
            ("functions.look:0", "call_0abc3"),
            ("", "call_0abc4"),
        ] {
            assert_eq!(ids.unique(given.into()), expected, "{given}");
        }
    }
}
