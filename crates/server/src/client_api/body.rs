//! Reads request bodies, within limits of size and time.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use throughline_canonical::{Fault, FaultKind};

/// How much memory is reserved for a body before it arrives.
const MAX_RESERVED_BYTES: u64 = 1 << 20;
/// How long a sender may pause within a body.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// How much of a body that is too large is still read.
const MAX_DRAIN_BYTES: usize = 256 << 20;
/// How long reading the rest of such a body may take.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(10);

/// Reads a whole body of at most `limit` bytes.
pub async fn read_body(mut body: Body, limit: usize) -> Result<Bytes, Fault> {
    let expected = body.size_hint().lower().min(MAX_RESERVED_BYTES);
    let mut limited = Limited::new(&mut body, limit);
    let mut bytes = BytesMut::new();
    loop {
        // The request holds a slot while its body arrives. A sender that stops must not keep it.
        let Ok(frame) = tokio::time::timeout(MAX_PAUSE, limited.frame()).await else {
            return Err(Fault::invalid(format!(
                "the rest of the request body did not arrive within {} s",
                MAX_PAUSE.as_secs()
            )));
        };
        match frame {
            None => return Ok(bytes.freeze()),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    if bytes.is_empty() {
                        if limited.is_end_stream() {
                            return Ok(data);
                        }
                        bytes.reserve(data.len().max(expected as usize));
                    }
                    bytes.extend_from_slice(&data);
                }
            }
            Some(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => {
                drain_body(body).await;
                return Err(too_large(limit));
            }
            Some(Err(error)) => {
                return Err(Fault::invalid(format!("the request body was cut off: {error}")));
            }
        }
    }
}

/// The fault for a request that is larger than `limit` bytes.
pub(super) fn too_large(limit: usize) -> Fault {
    let message =
        format!("the request body is larger than {limit} bytes; `limits.body` sets the limit");
    Fault::new(FaultKind::TooLarge, message)
}

/// Reads and discards the rest of a body, within bounds. A client that is cut off while it sends
/// sees a broken connection instead of the error.
pub(super) async fn drain_body(mut body: Body) {
    let reading = async {
        let mut left = MAX_DRAIN_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    // A slower client is cut off.
    let _ = tokio::time::timeout(MAX_DRAIN_TIME, reading).await;
}
