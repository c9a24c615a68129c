//! The capture of a reply as its provider sent it, for callers that store it.

use std::sync::Arc;

use parking_lot::Mutex;
use throughline_codec::dialects::raw_reply::{RawReply, RawShape};

/// A reply as its provider sent it, while it arrives. It outlives the events of the reply, so that
/// what has arrived can be stored also if the reply was cut or its reader has gone.
#[derive(Clone, Debug)]
pub struct RawCapture(Arc<Mutex<RawReply>>);

impl RawCapture {
    pub(crate) fn new(shape: RawShape, streamed: bool) -> Self {
        Self(Arc::new(Mutex::new(RawReply::new(shape, streamed))))
    }

    pub(crate) fn push(&self, bytes: &[u8]) {
        self.0.lock().push(bytes);
    }

    /// What has arrived so far, as one JSON text in the shape of the provider's dialect.
    pub fn payload(&self) -> String {
        self.0.lock().payload()
    }

    /// Whether a part is missing because the reply is too long.
    pub fn is_truncated(&self) -> bool {
        self.0.lock().is_truncated()
    }
}
