//! Compactions in the history. A backend reads those it made. For any other backend a readable one
//! becomes text, and one that cannot be read is refused: without it, the backend would answer from
//! a part of the conversation.

use std::sync::Arc;

use serde_json::Value;
use throughline_canonical::{
    Block, BlockKey, Fault, Loss, LossReason, LossSubject, MadeTurn, Message, Origin, Request, Role,
};
use throughline_codec::dialects::ClientDialect;
use throughline_codec::dialects::blocks::outline::{self, BlockKind, Outline};
use throughline_codec::dialects::compaction::{Compaction, is_trigger};
use throughline_codec::json::slice;

use crate::backend::{Backend, credential_fingerprint};
use crate::gateway::Gateway;
use crate::headers;
use crate::history::recall::client_key;
use crate::settings::Unknown;
use crate::thinking::Lineage;
use crate::thinking::envelope::SummaryResult;
use crate::thinking::memory::NewBlock;
use crate::turn::Attempt;
use crate::turn::request::IncomingRequest;
use crate::unix_ms;

/// The words before a summary that is sent as text.
const INTRODUCTION: &str = "Summary of the conversation so far:";

/// What a compaction means to a backend.
enum Reading {
    /// The backend reads it itself.
    Native,
    /// It means nothing.
    Nothing,
    Summary(String),
    Unreadable,
}

impl Gateway {
    /// Whether a body with an outline has a compaction that its target, of the same dialect, cannot
    /// read.
    pub(crate) fn has_foreign_compaction(&self, attempt: &Attempt<'_>, outline: &Outline) -> bool {
        let dialect = attempt.backend.dialect.name();
        self.is_any_foreign(attempt, outlined_compactions(dialect, &attempt.request.body, outline))
    }

    /// Whether a conversation has a compaction that its target, of the same dialect, cannot read.
    pub(crate) fn has_foreign_item(&self, attempt: &Attempt<'_>, messages: &[Message]) -> bool {
        let dialect = attempt.backend.dialect.name();
        let blocks = messages.iter().flat_map(|message| &message.content);
        let compactions = blocks.filter_map(|block| match block {
            Block::Opaque { dialect: own, value } if own == dialect => Compaction::read(own, value),
            _ => None,
        });
        self.is_any_foreign(attempt, compactions)
    }

    /// Whether a backend can read all thinking and all compactions of a conversation, as far as is
    /// known. `client` is the dialect that the conversation came in.
    pub fn reads_conversation(
        &self,
        backend: &Backend,
        client: &dyn ClientDialect,
        conversation: &Request,
    ) -> bool {
        let binds_text = client.defaults().signature_binds_text;
        let blocks = conversation.messages.iter().flat_map(|message| &message.content);
        let mut keys = blocks.filter_map(|block| match block {
            Block::Opaque { dialect, value } => Some(Compaction::read(dialect, value)?.key()),
            other => client_key(other, binds_text),
        });
        keys.all(|key| self.memory.reads(&backend.domain, &backend.name, &key) != Some(false))
    }

    /// Remembers that a backend wrote a compaction outside of a turn. Only it can read the
    /// compaction.
    pub fn remember_compaction(
        &self,
        backend: &str,
        incoming: &IncomingRequest,
        conversation: &Request,
        compaction: &Compaction,
    ) {
        let settings = self.settings();
        let Some(backend) = settings.backend(backend) else {
            return;
        };
        let origin = Arc::new(Origin {
            domain: backend.domain.clone(),
            backend: backend.name.clone(),
            model: conversation.model.clone(),
            credential: credential_fingerprint(&headers::credential(incoming, backend)),
        });
        self.memory.register(&NewBlock {
            lineage: Lineage::of_request(&incoming.headers, conversation),
            session: 1,
            origin: &origin,
            key: compaction.key(),
            prefix: None,
            cut: false,
            now: unix_ms(),
            memory_limit: settings.thinking.memory_limit,
        });
    }

    fn is_any_foreign(
        &self,
        attempt: &Attempt<'_>,
        mut compactions: impl Iterator<Item = Compaction>,
    ) -> bool {
        compactions.any(|found| {
            let reading = self.read_compaction(&found, attempt, true);
            !matches!(reading, Reading::Native | Reading::Nothing)
        })
    }

    /// Writes the compactions that the target cannot read as text. `dialect` is the dialect in which
    /// the target gets the request; `as_text`: it has refused a compaction.
    pub(crate) fn expand_compactions(
        &self,
        attempt: &Attempt<'_>,
        (dialect, as_text): (&str, bool),
        messages: &mut Vec<Message>,
        losses: &mut Vec<Loss>,
    ) -> Result<(), Fault> {
        if !messages.iter().any(|message| message.content.iter().any(is_opaque)) {
            return Ok(());
        }
        let mut expanded: Vec<Message> = Vec::with_capacity(messages.len());
        for Message { role, content, made } in std::mem::take(messages) {
            let mut kept = Vec::with_capacity(content.len());
            for block in content {
                let Some((found, own)) = compaction_of(&block, dialect, &attempt.backend.name)?
                else {
                    kept.push(block);
                    continue;
                };
                let may_be_native = own == dialect && !as_text;
                match self.read_compaction(&found, attempt, may_be_native) {
                    Reading::Native => kept.push(block),
                    Reading::Nothing => {}
                    Reading::Unreadable => return Err(found.refusal(&attempt.backend.name)),
                    Reading::Summary(summary) => {
                        if found.replaces_earlier {
                            expanded.clear();
                            kept.clear();
                        }
                        push(&mut expanded, role, &mut kept, made.as_ref());
                        let text = Block::text(format!("{INTRODUCTION}\n\n{summary}"));
                        expanded.push(Message::new(Role::User, vec![text]));
                        record_loss(losses);
                    }
                }
            }
            push(&mut expanded, role, &mut kept, made.as_ref());
        }
        *messages = expanded;
        Ok(())
    }

    /// What a compaction means to the target.
    fn read_compaction(
        &self,
        found: &Compaction,
        attempt: &Attempt<'_>,
        may_be_native: bool,
    ) -> Reading {
        if found.failed {
            return Reading::Nothing;
        }
        match self.envelopes.open_summary(found.sealed.as_deref().unwrap_or_default()) {
            SummaryResult::Ours(summary) => return Reading::Summary(summary),
            SummaryResult::Altered => return Reading::Unreadable,
            SummaryResult::NotOurs => {}
        }
        let reads = || {
            let known =
                self.memory.reads(&attempt.backend.domain, &attempt.backend.name, &found.key());
            // As with thinking, an unknown summary may be tried.
            known.unwrap_or(attempt.settings.thinking.unknown == Unknown::Try)
        };
        match &found.summary {
            _ if may_be_native && reads() => Reading::Native,
            Some(summary) => Reading::Summary(summary.clone()),
            None => Reading::Unreadable,
        }
    }
}

/// The keys of all compactions in a request.
pub(crate) fn compaction_keys(attempt: &Attempt<'_>) -> Vec<BlockKey> {
    let Ok(accepted) = attempt.request.canonical() else {
        return Vec::new();
    };
    let blocks = accepted.request.messages.iter().flat_map(|message| &message.content);
    let compactions = blocks.filter_map(|block| match block {
        Block::Opaque { dialect, value } => Compaction::read(dialect, value),
        _ => None,
    });
    compactions.map(|found| found.key()).collect()
}

/// The compactions of a body with an outline.
pub(crate) fn outlined_compactions<'a>(
    dialect: &'a str,
    body: &'a [u8],
    outline: &'a Outline,
) -> impl Iterator<Item = Compaction> + 'a {
    let blocks = outline.messages.iter().flat_map(outline::Message::blocks);
    blocks
        .filter(|block| block.kind == BlockKind::Compaction)
        .filter_map(|block| serde_json::from_slice::<Value>(slice(body, &block.span)).ok())
        .filter_map(|block| Compaction::read(dialect, &block))
}

/// The compaction in a block, with its dialect. Fails if the block asks for one that the target
/// cannot make.
fn compaction_of<'b>(
    block: &'b Block,
    dialect: &str,
    backend: &str,
) -> Result<Option<(Compaction, &'b str)>, Fault> {
    let Block::Opaque { dialect: own, value } = block else {
        return Ok(None);
    };
    if own != dialect && is_trigger(own, value) {
        return Err(Fault::at(
            "input",
            format!(
                "backend `{backend}` cannot compact a conversation within a turn; use \
                 `POST /v1/responses/compact`"
            ),
        ));
    }
    Ok(Compaction::read(own, value).map(|found| (found, own.as_str())))
}

fn record_loss(losses: &mut Vec<Loss>) {
    let loss =
        Loss::SettingAdapted { setting: LossSubject::Compaction, reason: LossReason::AsText };
    if !losses.contains(&loss) {
        losses.push(loss);
    }
}

fn is_opaque(block: &Block) -> bool {
    matches!(block, Block::Opaque { .. })
}

/// Adds the blocks of a message so far.
fn push(
    messages: &mut Vec<Message>,
    role: Role,
    content: &mut Vec<Block>,
    made: Option<&Arc<MadeTurn>>,
) {
    if !content.is_empty() {
        let content = std::mem::take(content);
        messages.push(Message { role, content, made: made.cloned() });
    }
}
