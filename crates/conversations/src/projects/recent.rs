//! Reads the newest nodes of a branch, until they fill the model's window. Earlier nodes have no room
//! there, so their contents stay sealed.

use super::Projects;
use super::branch::MAX_PATH;
use super::context::{EarlierNode, PastNode, Target, fills_window};
use super::problem::Problem;
use crate::chat_seal::ChatSeal;
use crate::store::Detail;

/// Nodes that are read first. Each of the next pages is twice as long as the one before.
const FIRST_PAGE: usize = 2_000;

/// A branch, as far as the next request needs it.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The newest nodes, oldest first.
    pub(super) nodes: Vec<PastNode>,
    /// Those before them, oldest first. There is no room for any.
    pub(super) earlier: Vec<EarlierNode>,
}

impl Projects {
    /// The path to a node, and what follows it but is not stored yet, as far as it can fit.
    pub(super) async fn recent(
        &self,
        seal: &ChatSeal,
        head: &str,
        more: Vec<PastNode>,
        target: &Target<'_>,
    ) -> Result<Recent, Problem> {
        let mut recent = Recent { nodes: more, earlier: Vec::new() };
        let (mut next, mut length) = (Some(head.to_owned()), FIRST_PAGE);
        if target.window.is_none() {
            length = MAX_PATH;
        }
        while let Some(head) = next {
            if !recent.nodes.is_empty() && fills_window(&recent.nodes, target) {
                recent.earlier = self.earlier(&head).await?;
                return Ok(recent);
            }
            let (mut page, parent) = self.past_page(seal, &head, length).await?;
            page.append(&mut recent.nodes);
            (recent.nodes, next) = (page, parent);
            length = length.saturating_mul(2);
        }
        Ok(recent)
    }

    /// The path to a node, without contents.
    async fn earlier(&self, head: &str) -> Result<Vec<EarlierNode>, Problem> {
        let nodes = self.sealed_store.store.path(head, MAX_PATH, Detail::Facts).await?;
        let read = nodes.into_iter().map(|node| {
            let inside = node.in_project.unwrap_or_default();
            EarlierNode { id: node.id, facts: inside.facts, has_thinking: inside.has_thinking }
        });
        Ok(read.collect())
    }
}
