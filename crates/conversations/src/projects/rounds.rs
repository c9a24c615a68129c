//! The rounds of an answer: asks the model for them, and finds them again among the blocks.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use throughline_canonical::{
    Block, Fault, NativePart, NativeTurn, Origin, Request, Tool, ToolChoice,
};
use throughline_codec::dialects::stored::Stored;
use throughline_codec::dialects::{UpstreamDialect, native_turn};
use throughline_gateway::reply::raw::RawCapture;
use throughline_gateway::turn::turn_reply::{FinishedReply, UnreadReply};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Duration, sleep};

use super::Caller;
use super::answer::{Answer, join_native};
use super::content::NodeContent;
use super::context::PastNode;
use super::problem::Problem;
use crate::store::{NodeFacts, NodeRole};
use crate::tool_loop::driver::Model;
use crate::tool_loop::joined_rounds::JoinedRounds;

/// The pause before a later round asks again for a slot, if all streams are in use.
const SLOT_PAUSE: Duration = Duration::from_millis(100);

/// What is known about the requests of an answer once they are sent.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// The provider's replies, as they arrive, one per round.
    pub(super) raws: Vec<RawCapture>,
    /// About how many tokens the requests of all rounds have.
    pub(super) estimated: Option<u64>,
    /// Whether the provider is asked to store the reply.
    pub(super) is_stored: bool,
    /// Who makes the blocks.
    pub(super) maker: Option<Maker>,
}

/// Who makes the blocks of an answer.
#[derive(Clone, Debug)]
pub(super) struct Maker {
    pub(super) origin: Origin,
    pub(super) dialect: &'static dyn UpstreamDialect,
}

impl Sent {
    /// What the blocks of the newest round lack of the provider's own form.
    pub(super) fn native(&self, blocks: &[Block]) -> Option<NativeTurn> {
        let dialect = self.maker.as_ref()?.dialect;
        dialect.native_form()?;
        let raw = self.raws.last().filter(|raw| !raw.is_truncated())?;
        native_turn::read(dialect, &raw.payload(), blocks)
    }
}

/// Asks the model for the rounds of an answer.
pub(super) struct Rounds<'a> {
    pub(super) answer: &'a Answer,
    pub(super) caller: Caller,
    /// The request without its messages.
    pub(super) request: Request,
    /// The names of the client's own tools.
    pub(super) clients_tools: Vec<String>,
    /// The slot of the first round.
    pub(super) permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(
        answer: &'a Answer,
        caller: Caller,
        request: Request,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let is_ours = |name: &String| answer.tools.find(name).is_some();
        let names = request.tools.iter().filter_map(|tool| match tool {
            Tool::Function { name, .. } => Some(name.clone()),
            Tool::Opaque { .. } => None,
        });
        let clients_tools = names.filter(|name| !is_ours(name)).collect();
        Self { answer, caller, request, clients_tools, permit: Mutex::new(Some(permit)) }
    }

    /// A slot for the next round.
    async fn slot(&self) -> OwnedSemaphorePermit {
        let first = self.permit.lock().take();
        if let Some(permit) = first {
            return permit;
        }
        loop {
            match self.answer.projects.gateway.admit() {
                Ok(permit) => return permit,
                // What is finished must not be lost. The loop has a time limit.
                Err(_) => sleep(SLOT_PAUSE).await,
            }
        }
    }

    /// The earlier rounds, as a node of the history.
    fn earlier_rounds(&self, joined: &JoinedRounds) -> Option<PastNode> {
        if joined.rounds.is_empty() {
            return None;
        }
        let content = &self.answer.content;
        let maker = self.answer.sent.lock().maker.clone();
        let reply = joined.reply();
        let is_stored = self.answer.sent.lock().is_stored
            && maker.as_ref().is_some_and(|maker| maker.dialect.profile("").has_response_ids);
        Some(PastNode {
            id: content.node.clone(),
            facts: NodeFacts {
                role: NodeRole::Assistant,
                provider: Some(content.provider.clone()),
                model: Some(content.model.clone()),
                branch: content.branch.clone(),
                response_id: (is_stored && !reply.id.is_empty()).then(|| reply.id.clone()),
                ..NodeFacts::default()
            },
            content: NodeContent {
                blocks: reply.content.clone(),
                native: join_native(&joined.rounds, None),
                origin: maker.map(|maker| maker.origin),
                ..NodeContent::default()
            },
        })
    }

    async fn ask_round(&self, joined: &JoinedRounds) -> Result<UnreadReply, Box<FinishedReply>> {
        let Answer { projects, seal, content, .. } = self.answer;
        let incoming = projects.incoming(&self.caller, &content.provider, seal);
        let mut request = self.request.clone();
        let more: Vec<PastNode> = self.earlier_rounds(joined).into_iter().collect();
        if !more.is_empty() && forces_calls(&request) {
            // The model was forced to call a tool, and has. Otherwise it would never answer.
            request.tool_choice = Some(ToolChoice::Auto);
        }
        let assembled = projects.assemble(seal, content, request, more).await;
        let (request, context) = match assembled {
            Ok(assembled) => assembled,
            Err(problem) => return Err(self.rejected(&problem)),
        };
        let is_stored = request.provider_state.store;
        let accepted = Stored::accept(request, context.left_out, context.losses);
        let permit = self.slot().await;
        let mut reply = projects.gateway.turn_events(incoming, accepted, permit).await?;
        let dialect = reply.head.upstream_dialect();
        let keeps_native = dialect.native_form().is_some();
        let raw = (projects.settings().raw || keeps_native).then(|| reply.capture_raw());
        let mut sent = self.answer.sent.lock();
        sent.raws.extend(raw);
        sent.estimated = Some(sent.estimated.unwrap_or_default() + context.estimated);
        sent.is_stored = is_stored;
        sent.maker = Some(Maker { origin: (**reply.head.origin()).clone(), dialect });
        Ok(reply)
    }

    fn rejected(&self, problem: &Problem) -> Box<FinishedReply> {
        let Answer { projects, seal, content, .. } = self.answer;
        let incoming = projects.incoming(&self.caller, &content.provider, seal);
        let fault: Fault = problem.fault().clone();
        let reply = projects.gateway.reject(&incoming, &fault);
        Box::new(FinishedReply { reply, fault: Some(fault) })
    }
}

/// How many blocks of an answer belong to rounds whose calls have results.
pub(super) fn finished_rounds(blocks: &[Block]) -> usize {
    blocks.iter().rposition(is_result).map_or(0, |at| at + 1)
}

/// The native parts of the blocks in this range, as a turn of their own.
pub(super) fn native_round(native: &NativeTurn, first: usize, end: usize) -> NativeTurn {
    let parts = native.parts.iter().filter(|part| (first..end).contains(&part.first));
    let parts = parts.map(|part| NativePart { first: part.first - first, ..part.clone() });
    NativeTurn { dialect: native.dialect.clone(), parts: parts.collect() }
}

/// Whether a block is the result of a call.
pub(super) fn is_result(block: &Block) -> bool {
    matches!(block, Block::ToolResult { .. })
}

fn forces_calls(request: &Request) -> bool {
    matches!(request.tool_choice, Some(ToolChoice::Required | ToolChoice::Named { .. }))
}

impl Model for Rounds<'_> {
    fn ask<'a>(
        &'a self,
        joined: &'a JoinedRounds,
    ) -> BoxFuture<'a, Result<UnreadReply, Box<FinishedReply>>> {
        self.ask_round(joined).boxed()
    }

    fn round_facts(&self, blocks: &[Block]) -> (Option<Origin>, Option<NativeTurn>) {
        let sent = self.answer.sent.lock();
        (sent.maker.as_ref().map(|maker| maker.origin.clone()), sent.native(blocks))
    }

    fn stopping(&self) -> BoxFuture<'_, ()> {
        self.answer.projects.gateway.requests_end().boxed()
    }

    fn is_clients(&self, tool: &str) -> bool {
        self.clients_tools.iter().any(|name| name == tool)
    }
}
