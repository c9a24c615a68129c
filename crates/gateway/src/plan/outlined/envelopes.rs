//! Envelopes in a passthrough conversation: they hold thinking of backends of other dialects. No
//! provider can read an envelope, so the plan replaces it by the native signature if the target
//! made the block, and leaves the block out otherwise.

use std::sync::Arc;

use throughline_canonical::{BlockKey, Reason};
use throughline_codec::dialects::blocks::outline::{Block, BlockKind};
use throughline_codec::json::{Edits, Span, each_member, quote, slice, text};
use throughline_sealing::text::PREFIX;

use crate::gateway::Gateway;
use crate::history::recall::key_of;
use crate::thinking::envelope::{EnvelopeKind, OpenResult};
use crate::thinking::memory::{TargetIdentity, Verdict};

/// A thinking block that holds an envelope.
pub(crate) struct SealedBlock {
    /// Its key, as the translate lane registered it.
    pub(crate) key: BlockKey,
    opened: OpenResult,
    /// Where the envelope is in the body, with its quotes.
    span: Span,
}

/// A native signature that replaces an envelope.
#[derive(Debug)]
pub(crate) struct NativeSignature {
    span: Span,
    signature: String,
}

impl NativeSignature {
    /// Whether the envelope is inside a block.
    pub(crate) fn is_inside(&self, block: &Span) -> bool {
        block.start <= self.span.start && self.span.end <= block.end
    }

    /// Replaces the envelope.
    pub(crate) fn write(&self, edits: &mut Edits) {
        edits.replace(self.span.clone(), quote(&self.signature));
    }
}

impl Gateway {
    /// The envelope of a thinking block, if it has one.
    pub(crate) fn open_envelope(&self, body: &[u8], block: &Block) -> Option<SealedBlock> {
        let BlockKind::Thinking { .. } = block.kind else {
            return None;
        };
        let bytes = slice(body, &block.span);
        // Almost no block has one, so this search must be cheap.
        memchr::memmem::find(bytes, PREFIX.as_bytes())?;
        let mut found = None;
        let members = each_member(body, block.span.start, |key, _, span| {
            if key == b"signature" || key == b"data" {
                found = Some(span);
            }
        });
        members.ok()?;
        let span = found?;
        let signature = text(body, &span).into_owned();
        let opened = self.envelopes.open(&signature);
        if opened == OpenResult::NotOurs {
            return None;
        }
        Some(SealedBlock {
            key: key_of(&throughline_canonical::Block::Redacted { data: signature })?,
            opened,
            span,
        })
    }
}

impl SealedBlock {
    /// Decides the fate of the block, given the memory's verdict.
    pub(crate) fn judge(
        self,
        verdict: &Verdict,
        target: &TargetIdentity,
    ) -> (Verdict, Option<NativeSignature>) {
        let leave_out = |reason, origin| (Verdict::LeaveOut { reason, origin }, None);
        let envelope = match self.opened {
            OpenResult::Ours(envelope) => envelope,
            OpenResult::Altered | OpenResult::NotOurs => return leave_out(Reason::Origin, None),
            OpenResult::Sealed => return leave_out(Reason::Sealed, None),
        };
        let origin = Arc::new(envelope.origin);
        if let Verdict::LeaveOut { reason, .. } = verdict {
            return leave_out(*reason, Some(origin));
        }
        let signature = match envelope.kind {
            EnvelopeKind::Redacted { data } => Some(data),
            _ => envelope.signature,
        };
        match signature {
            _ if envelope.cut => leave_out(Reason::Cut, Some(origin)),
            Some(signature) if target.reads(&origin) => (
                Verdict::Send { origin: Some(origin), prefix: None, dropped: None },
                Some(NativeSignature { span: self.span, signature }),
            ),
            _ => leave_out(Reason::Origin, Some(origin)),
        }
    }
}
