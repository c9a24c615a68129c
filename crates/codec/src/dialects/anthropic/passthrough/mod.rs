//! Keep-alives and errors in a stream that passes through, and the span of the model name.

use throughline_canonical::Fault;

use self::rewrite::reply_model;
use super::Anthropic;
use super::client_reply::{PING, error_event};
use crate::dialects::passthrough::{ModelNameSpan, Passthrough, StreamInjector};
use crate::json::{Kind, Span, each_member, inside};

pub mod outline;
pub mod prefix;
pub mod rewrite;
pub mod settings;

/// The event that names the model.
const START: &[u8] = b"message_start";

impl Passthrough for Anthropic {
    fn model_name_span(&self, event: &[u8], data: &[u8]) -> ModelNameSpan {
        let mut kind = event;
        // The data repeats the event name, and more reliably.
        let _ = each_member(data, 0, |key, value, span| {
            if key == b"type" && value == Kind::String {
                kind = inside(data, &span);
            }
        });
        match kind {
            START => ModelNameSpan::Only(reply_model(data)),
            _ => ModelNameSpan::None,
        }
    }

    fn model_of(&self, reply: &[u8]) -> Option<Span> {
        reply_model(reply)
    }

    fn injector(&self) -> Box<dyn StreamInjector> {
        Box::new(Injector)
    }
}

#[derive(Debug)]
struct Injector;

impl StreamInjector for Injector {
    fn keep_alive(&self) -> Vec<u8> {
        PING.to_vec()
    }

    fn error(&self, fault: &Fault, half: Option<&[u8]>) -> Vec<u8> {
        error_event(fault, half)
    }
}
