//! Our own words in a provider's stream, and where that names the model.

use std::borrow::Cow;

use throughline_canonical::{Fault, Lossy};

use super::super::Asked;
use super::super::in_place::{Aside, InPlace, Naming, close_event};
use super::super::places::{self, Places};
use super::client_reply::KEEP_ALIVE;
use super::mark::Mark;
use super::{OpenAiChat, complete, faults, outline, variants};
use crate::json::{Kind, Span, each_member};

impl InPlace for OpenAiChat {
    fn places(&self, asked: &Asked<'_>) -> Option<Places> {
        outline::read(asked.body).ok()
    }

    fn path(&self, _: &str, _model: &str, _renamed: bool, variant: &str) -> String {
        variants::find(variant).path.to_owned()
    }

    fn refuses(&self, mark: &places::Mark, variant: &str) -> bool {
        mark.beside && variants::find(variant).refuses_reasoning
    }

    fn complete(&self, body: &[u8], variant: &str) -> Lossy<Option<Vec<u8>>> {
        complete::write(body, variants::find(variant))
    }

    fn place(&self, message: usize, _: Option<usize>) -> String {
        // Reasoning stands in several members of a message at once.
        format!("messages.{message}")
    }

    fn as_it_stands<'s>(&self, signature: &'s str) -> Cow<'s, str> {
        match signature.starts_with('{') {
            true => Mark::unpack(signature).signature.into(),
            false => signature.into(),
        }
    }

    fn naming(&self, _: &[u8], data: &[u8]) -> Naming {
        match self.model_of(data) {
            Some(name) => Naming::Here(name),
            None => Naming::Not,
        }
    }

    fn model_of(&self, reply: &[u8]) -> Option<Span> {
        let mut name = None;
        each_member(reply, 0, |key, kind, span| {
            if key == b"model" && kind == Kind::String {
                name = Some(span.start + 1..span.end - 1);
            }
        })
        .ok()?;
        name
    }

    fn aside(&self) -> Box<dyn Aside> {
        Box::new(Words)
    }
}

#[derive(Debug)]
struct Words;

impl Aside for Words {
    fn sign_of_life(&self) -> Vec<u8> {
        KEEP_ALIVE.to_vec()
    }

    fn error(&self, fault: &Fault, half: Option<&[u8]>) -> Vec<u8> {
        let error = faults::object(fault).to_string();
        let mut out = Vec::new();
        close_event(half, &error, &mut out);
        let told = format!("data: {{\"error\":{error}}}\n\ndata: [DONE]\n\n");
        out.extend_from_slice(told.as_bytes());
        out
    }
}
