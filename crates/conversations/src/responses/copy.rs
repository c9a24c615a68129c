//! Copies of responses that a backend of the dialect made and may store itself.

use std::sync::Arc;

use serde_json::Value;
use throughline_codec::dialects::openai_responses;
use throughline_codec::dialects::openai_responses::state::{Progress, step};
use throughline_codec::framing::MAX_REPLY_BYTES;
use throughline_codec::framing::sse::Framer;
use throughline_codec::json::EndDetector;
use throughline_gateway::headers::BACKEND;
use throughline_gateway::turn::error_reply::Reply;

use super::Responses;
use super::create::Turn;
use crate::body::{Answer, plain};
use crate::copy::{ReplyCopy, forward_and_copy, is_streamed};

/// Reads a response from the bytes of its reply. One that is too long to read still passes.
enum ResponseReader {
    Events { framer: Framer, progress: Progress },
    Whole { bytes: Vec<u8>, end: EndDetector },
}

impl ResponseReader {
    fn new(streamed: bool) -> Self {
        match streamed {
            true => {
                Self::Events { framer: Framer::new(MAX_REPLY_BYTES), progress: Progress::default() }
            }
            false => Self::Whole { bytes: Vec::new(), end: EndDetector::default() },
        }
    }

    fn push(&mut self, piece: &[u8]) {
        match self {
            Self::Events { framer, progress } => {
                framer.push(piece, |frame, _| progress.take(step(frame.data).1));
            }
            Self::Whole { bytes, end } => {
                if bytes.len() < MAX_REPLY_BYTES {
                    bytes.extend_from_slice(piece);
                }
                end.push(piece);
            }
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Self::Events { progress, .. } => progress.ended().is_some(),
            Self::Whole { end, .. } => end.is_complete(),
        }
    }

    /// The response so far. `status` is used if the reply has not ended.
    fn response(&self, status: &str) -> Option<Value> {
        match self {
            Self::Events { progress, .. } => progress.so_far(status, None),
            Self::Whole { bytes, .. } => serde_json::from_slice(bytes).ok(),
        }
    }
}

/// A response on its way to the client.
struct ResponseCopy {
    responses: Arc<Responses>,
    reader: ResponseReader,
    turn: Turn,
    /// The backend that also stores the response.
    native: Option<String>,
}

impl ReplyCopy for ResponseCopy {
    fn push(&mut self, piece: &[u8]) {
        self.reader.push(piece);
    }

    fn has_ended(&self) -> bool {
        self.reader.has_ended()
    }

    async fn store(self, client_gone: bool) {
        let status = if client_gone { "cancelled" } else { "failed" };
        if let Some(response) = self.reader.response(status) {
            self.responses.store_response(response, self.turn, self.native).await;
        }
    }
}

impl Responses {
    /// Forwards a reply and stores a copy of its response.
    pub(super) fn forward_and_copy(self: &Arc<Self>, reply: Reply, turn: Turn) -> Answer {
        if !reply.status().is_success() {
            return plain(reply);
        }
        // A fallback backend may have answered, and one of another dialect stores nothing.
        let named = reply.headers().get(BACKEND).and_then(|name| name.to_str().ok());
        let settings = self.gateway.settings();
        let speaks_it = |name: &&str| {
            let backend = settings.backend(name);
            backend.is_some_and(|backend| backend.dialect.name() == openai_responses::NAME)
        };
        let copy = ResponseCopy {
            responses: Arc::clone(self),
            reader: ResponseReader::new(is_streamed(&reply)),
            turn,
            native: named.filter(speaks_it).map(str::to_owned),
        };
        forward_and_copy(reply, copy)
    }
}
