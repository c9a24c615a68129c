//! Limits on the size of provider replies.

/// The longest event or line of a stream.
pub(crate) const MAX_EVENT_BYTES: usize = 16 << 20;
/// The longest whole reply.
pub(crate) const MAX_REPLY_BYTES: usize = 64 << 20;
