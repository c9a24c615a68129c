//! Answers of sealed projects whose server died. Without the key their log cannot be read, so the run
//! ends without a node. The next request that has the key makes the node from the log.

use std::sync::Arc;
use std::time::Duration;

use throughline_gateway::thinking::store::StoreError;
use throughline_gateway::unix_ms;

use super::Projects;
use super::answer::Answer;
use super::problem::Problem;
use super::turn::scope;
use crate::chat_seal::ChatSeal;
use crate::runs::canonical::left_reply;
use crate::runs::server_died;
use crate::sealed_store::expires;
use crate::store::{Commit, Move, Outcome, Project, Reference, Run, RunEnd, RunStatus};

/// How long the log of such a run waits for the key.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The newest runs of a project among which an unfinished answer is searched.
const MAX_RECENT_RUNS: usize = 64;

impl Projects {
    /// Ends a run without its key.
    pub(super) async fn end_without_key(&self, run: &Run) -> Result<(), StoreError> {
        let end = RunEnd {
            run: run.id.clone(),
            epoch: run.epoch,
            status: RunStatus::Interrupted,
            expires: Some(expires(unix_ms(), RETENTION)),
            sealed: run.sealed.clone(),
        };
        let commit = Commit { end: Some(end), ..Commit::default() };
        self.sealed_store.store.commit(commit).await.map(drop)
    }

    /// Stores the answer at the end of a branch whose server died, if there is one. The branch then
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
        let entries = self.runs.stored_entries(&run.id, None, Some(seal)).await?;
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
