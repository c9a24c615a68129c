//! Merges branches. The strategy `ours` keeps the history of the branch that is merged into, and adds
//! one node that names the other branch and has its result.

use serde::{Deserialize, Serialize};
use throughline_canonical::Block;
use utoipa::ToSchema;

use super::branch::busy;
use super::content::{NodeContent, NodeView};
use super::history::view;
use super::locks::replaced_key;
use super::problem::Problem;
use super::turn::new_node;
use super::{Caller, Projects};
use crate::chat_seal::ChatSeal;
use crate::store::{Commit, Move, NodeRole, Outcome};

/// Characters of the other branch's last answer that the node repeats if there is no summary.
const MAX_EXCERPT: usize = 4_000;
/// Nodes that are read at a time to find that answer.
const EXCERPT_PAGE: usize = 100;

/// A merge of two branches.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Merge {
    /// The branch whose result is taken over.
    pub from: String,
    /// The branch that gets it.
    pub into: String,
    /// How: `ours`.
    pub strategy: Option<String>,
    /// The result of the other branch. Empty: its last answer.
    pub summary: Option<String>,
}

/// What a merge did.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Merged {
    /// The new head of the branch.
    pub head: String,
    /// The node that was added.
    pub node: NodeView,
}

impl Projects {
    /// Merges a branch into another.
    pub async fn merge(
        &self,
        caller: &Caller,
        project: &str,
        merge: Merge,
    ) -> Result<Merged, Problem> {
        let strategy = merge.strategy.as_deref().unwrap_or("ours");
        if strategy != "ours" {
            return Err(Problem::invalid("strategy", "must be `ours`"));
        }
        let project = self.own_project(caller, project).await?;
        let seal = self.unlock(caller, &project)?;
        let from = self.branch(&project, &merge.from).await?;
        let into = self.branch(&project, &merge.into).await?;
        let (Some(theirs), true) = (from.head.clone(), from.id != into.id) else {
            return Err(Problem::invalid("from", "must be another branch that has nodes"));
        };
        let summary = match merge.summary.filter(|summary| !summary.trim().is_empty()) {
            Some(summary) => summary,
            None => self.last_answer(&seal, &theirs).await?,
        };
        let text = format!("[merged branch `{}`]\n{summary}", merge.from);
        let content = NodeContent { blocks: vec![Block::text(text)], ..NodeContent::default() };
        let parent = into.head.clone();
        let mut node = new_node(&seal, &project, &into.id, parent.clone(), &content);
        let id = node.id.clone();
        if let Some(inside) = &mut node.in_project {
            inside.facts.merged = Some(theirs);
        }
        let moves = Move { reference: into.id.clone(), from: parent, to: Some(id.clone()) };
        let commit = Commit {
            sealed_under: seal.sealed_under(),
            nodes: vec![node.clone()],
            moves: Some(moves),
            ..Commit::default()
        };
        match self.sealed_store.store.commit(commit).await? {
            Outcome::Written => {}
            Outcome::KeyChanged => return Err(replaced_key(&seal)),
            Outcome::Busy { run } => return Err(busy(&run)),
            _ => return Err(self.stale(&into.id).await),
        }
        let names = self.branch_names(&project).await?;
        Ok(Merged { head: id, node: view(Some(&seal), &node, &names)? })
    }

    /// The text of the newest answer on a path.
    async fn last_answer(&self, seal: &ChatSeal, head: &str) -> Result<String, Problem> {
        let mut next = Some(head.to_owned());
        while let Some(head) = next {
            let (past, before) = self.past_page(seal, &head, EXCERPT_PAGE).await?;
            let answers = past.iter().rev().filter(|node| node.facts.role == NodeRole::Assistant);
            let mut texts = answers.map(|node| node.content.text());
            if let Some(text) = texts.find(|text| !text.is_empty()) {
                return Ok(text.chars().take(MAX_EXCERPT).collect());
            }
            next = before;
        }
        Ok(String::new())
    }
}
