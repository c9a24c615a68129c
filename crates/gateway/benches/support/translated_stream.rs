//! The translation of one streamed reply without a server around it. The crate compiles this file with
//! its feature `bench`, because it needs private parts.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use throughline_canonical::{Origin, Request};
use throughline_codec::dialects::{ClientDialect, Target, UpstreamDialect};

use crate::gateway::Gateway;
use crate::plan::translated_reply::identity;
use crate::relay::call_ids::CallIds;
use crate::relay::{Relay, SentRequest, SignatureForm};
use crate::reply::ReplyTransform;
use crate::reply::translated::{Encoder, EventSource, TranslatedReply};
use crate::thinking::Lineage;
use crate::thinking::vault::Scope;
use crate::turn::ledger::{Ledger, ReplyProgress};
use crate::turn::log::SharedTurn;

/// A streamed reply that is translated from one dialect to another.
#[derive(Debug)]
pub struct TranslatedStream(TranslatedReply<Encoder>);

impl TranslatedStream {
    /// Starts the reply to a request, as a turn would.
    pub fn new(
        gateway: &Gateway,
        client: &'static dyn ClientDialect,
        upstream: &dyn UpstreamDialect,
        request: &Request,
    ) -> Self {
        let settings = gateway.settings();
        let identity = identity("turn_0123456789abcdef");
        let ledger = Ledger {
            memory: gateway.memory.clone(),
            record: gateway.record(),
            turn: SharedTurn::default(),
            span: tracing::Span::none(),
            lineage: Lineage::of_request(&HeaderMap::new(), request),
            session: 1,
            origin: Arc::new(Origin {
                domain: "a".to_owned(),
                backend: "a".to_owned(),
                model: "m".to_owned(),
                credential: String::new(),
            }),
            began: Instant::now(),
            memory_limit: settings.thinking.memory_limit,
            full_body: settings.full_body,
            private: false,
            progress: ReplyProgress::default(),
        };
        let signature_form = match client.name() == upstream.name() {
            true => SignatureForm::Native { unsigned: None },
            false => SignatureForm::Enveloped {
                envelopes: gateway.envelopes.clone(),
                first_call: client.defaults().wants_signed_calls,
                thinking_holds_call: upstream.profile("").signs_calls
                    && !client.defaults().wants_signed_calls,
            },
        };
        let ids = Some(CallIds::new(request, &identity.id));
        let sent = SentRequest {
            blocks: Vec::new(),
            losses: Vec::new(),
            client,
            turn_position: Default::default(),
            scope: Scope::new(ledger.lineage.id, String::new()),
            sent_thinking: None,
            prefix: None,
            returns_call_ids: client.defaults().returns_call_ids,
            learnt: std::sync::Arc::default(),
        };
        let target = Target { model: "m", profile: upstream.profile("") };
        let vault = gateway.vault.clone();
        let source = EventSource {
            raw: None,
            decoder: None,
            reader: upstream.reply_reader(&target, true),
            relay: Relay::new(ledger, signature_form, vault, ids, sent, true),
            summarizes: false,
            whole: None,
        };
        Self(TranslatedReply::new(
            source,
            Encoder::new(client.session().reply_writer(request, &identity)),
        ))
    }

    /// Takes bytes of the provider and returns bytes for the client.
    pub fn take(&mut self, bytes: Bytes) -> Bytes {
        // Uncompressed bytes cannot fail to decompress.
        self.0.take(bytes, false).unwrap_or_default()
    }

    /// Ends the reply. Returns the client's last bytes.
    pub fn end(&mut self) -> Bytes {
        self.0.end().unwrap_or_default()
    }
}
