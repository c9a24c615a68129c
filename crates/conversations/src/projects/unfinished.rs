//! Answers of sealed projects that have no node yet: their server died, or the key was changed while they
//! were written. Nothing may be sealed under an earlier key, and without a key the log cannot be read, so
//! the run ends without a node. The next request that has the present key makes the node from the log.

use std::sync::Arc;
use std::time::Duration;

use throughline_gateway::thinking::store::StoreError;
use throughline_gateway::unix_ms;

use super::Projects;
use super::answer::Answer;
use super::problem::Problem;
use super::turn::scope;
use super::unreadable::or_unreadable;
use crate::chat_seal::ChatSeal;
use crate::runs::canonical::left_reply;
use crate::runs::server_died;
use crate::sealed_store::expires;
use crate::store::{Commit, Move, Outcome, Project, Reference, RunCost, RunEnd, RunStatus};

/// How long the log of such a run waits for the key.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The newest runs of a project among which an unfinished answer is searched.
const MAX_RECENT_RUNS: usize = 64;

impl Projects {
    /// Ends a run without its node, because the server has no present key. The log waits for it.
    pub(super) async fn end_without_node(
        &self,
        end: RunEnd,
        cost: Option<RunCost>,
    ) -> Result<Outcome, StoreError> {
        let end = RunEnd {
            status: RunStatus::Interrupted,
            expires: Some(expires(unix_ms(), RETENTION)),
            ..end
        };
        let commit = Commit { end: Some(end), cost, ..Commit::default() };
        self.sealed_store.store.commit(commit).await
    }

    /// Stores the answer at the end of a branch that has no node yet, if there is one. The branch then
    /// points to it.
    pub(super) async fn recover(
        self: &Arc<Self>,
        seal: &Arc<ChatSeal>,
        project: &Project,
        branch: &mut Reference,
    ) -> Result<(), Problem> {
        if !seal.is_clients() || branch.head.is_none() {
            return Ok(());
        }
        let store = &self.sealed_store.store;
        let runs = store.runs(&project.owner, &scope(&project.id), MAX_RECENT_RUNS).await?;
        let newest = runs.into_iter().find(|run| run.reference.as_deref() == Some(&*branch.id));
        let Some(run) = newest.filter(|run| run.status == RunStatus::Interrupted) else {
            return Ok(());
        };
        let content = self.run_content(&run)?;
        let before = content.replaces.as_ref().unwrap_or(&content.parent);
        if branch.head.as_ref() != Some(before) || store.node(&content.node).await?.is_some() {
            return Ok(());
        }
        let entries = self.runs.stored_entries(&run.id, None, Some(seal)).await;
        let (entries, problem) = or_unreadable(entries.map_err(Problem::from))?;
        if problem.is_some() {
            // A damaged log does not keep its branch from going on.
            return Ok(());
        }
        let driven = left_reply(&entries, server_died());
        let answer = Answer::new(Arc::clone(self), seal.clone(), &run, content, RETENTION);
        let Some(node) = answer.node(&driven, project) else {
            return Ok(());
        };
        let to = Some(node.id.clone());
        let moves =
            Move { reference: branch.id.clone(), from: branch.head.clone(), to: to.clone() };
        let commit = Commit {
            sealed_under: seal.sealed_under(),
            nodes: vec![node],
            moves: Some(moves),
            cost: answer.run_cost(&driven),
            ..Commit::default()
        };
        // If the branch has moved, another request has stored the answer. If the key has changed, one
        // with the new key will.
        if store.commit(commit).await? == Outcome::Written {
            branch.head = to;
        }
        Ok(())
    }
}
