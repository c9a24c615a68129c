//! Shows what would be sent for a chat turn, and why, without sending it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use throughline_codec::dialects::stored::Stored;
use throughline_gateway::plan::preview::Preview;
use utoipa::ToSchema;

use super::answer::{RunContent, new_node};
use super::context::NodeUse;
use super::problem::Problem;
use super::project::FIRST_BRANCH;
use super::turn::{ChatRequest, facts_of, read_part};
use super::{Caller, Projects};

/// What would be sent.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatPreview {
    /// The fate of each node of the branch, oldest first.
    pub nodes: Vec<NodeUse>,
    /// About how many tokens the request has, its system text and tools included.
    pub tokens: u64,
    /// The request and the fate of each block.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub preview: Preview,
    /// How long its steps took.
    #[serde(skip)]
    pub times: PreviewTimes,
}

/// How long the steps of a preview took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreviewTimes {
    /// Reading the branch and choosing what of it is sent.
    pub assembly: Duration,
    /// Planning and writing the provider's request.
    pub plan: Duration,
}

impl Projects {
    /// Shows what would be sent for a chat turn. Nothing is stored.
    pub async fn preview(
        self: &Arc<Self>,
        caller: &Caller,
        project: &str,
        chat: ChatRequest,
    ) -> Result<ChatPreview, Problem> {
        let project = self.own_project(caller, project).await?;
        let seal = self.unlock(caller, &project)?;
        let name = chat.branch.as_deref().unwrap_or(FIRST_BRANCH);
        let mut branch = self.branch(&project, name).await?;
        self.recover(&seal, &project, &mut branch).await?;
        let facts = facts_of(&branch);
        let lock = self.resolve_lock(
            chat.llm_provider.as_deref(),
            chat.llm_model.as_deref(),
            Some(&facts),
        )?;
        let part =
            read_part(chat.message, chat.tool_results, chat.settings, self.stores_replies())?;
        let part = self.offer_tools(part).await?;
        self.check_results(&seal, branch.head.as_deref(), &part).await?;
        let run = RunContent {
            project: project.id.clone(),
            branch: branch.id.clone(),
            parent: branch.head.clone().unwrap_or_default(),
            provider: lock.0,
            model: lock.1,
            ..RunContent::default()
        };
        let began = Instant::now();
        let (request, context) =
            self.assemble(&seal, &run, part.request, vec![new_node(part.blocks)]).await?;
        let assembly = began.elapsed();
        let incoming = self.incoming(caller, &run.provider, &seal);
        let accepted = Stored::accept(request, context.left_out, context.losses);
        let preview = self.gateway.preview(incoming, accepted).await?;
        let times = PreviewTimes { assembly, plan: began.elapsed().saturating_sub(assembly) };
        Ok(ChatPreview { nodes: context.nodes, tokens: context.tokens, preview, times })
    }
}
