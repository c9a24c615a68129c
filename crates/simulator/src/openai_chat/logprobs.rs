//! The probabilities of tokens. Each piece of text that a stream sends is one token.

use serde_json::{Value, json};

use super::request::ParsedRequest;
use super::variants::Variant;
use crate::signing::hash;

/// How a reply writes the probabilities of its tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logprobs {
    /// How many tokens each entry compares.
    alternatives: u64,
    /// The reasoning has probabilities too.
    of_reasoning: bool,
}

impl Logprobs {
    /// What a request asks for.
    pub(crate) fn read(request: &ParsedRequest, variant: &Variant) -> Option<Self> {
        let asks = request.get("logprobs") == &Value::Bool(true);
        asks.then(|| Self {
            alternatives: request.get("top_logprobs").as_u64().unwrap_or_default(),
            of_reasoning: variant.logprobs_of_reasoning,
        })
    }

    /// The probability of a token of the answer.
    pub(crate) fn content(self, token: &str) -> Value {
        self.members(&[self.entry(token)], &[])
    }

    /// The probability of a token of the reasoning.
    pub(crate) fn reasoning(self, token: &str) -> Value {
        match self.of_reasoning {
            true => self.members(&[], &[self.entry(token)]),
            false => Value::Null,
        }
    }

    /// The probabilities of a whole reply, from those of its pieces. Null if no token has one.
    pub(crate) fn join<'a>(self, pieces: impl Iterator<Item = &'a Value>) -> Value {
        let (mut content, mut reasoning) = (Vec::new(), Vec::new());
        for piece in pieces {
            for (member, entries) in
                [("content", &mut content), ("reasoning_content", &mut reasoning)]
            {
                entries.extend(piece[member].as_array().into_iter().flatten().cloned());
            }
        }
        match content.is_empty() && reasoning.is_empty() {
            true => Value::Null,
            false => self.members(&content, &reasoning),
        }
    }

    fn members(self, content: &[Value], reasoning: &[Value]) -> Value {
        let list = |entries: &[Value]| match entries {
            [] => Value::Null,
            entries => entries.into(),
        };
        let mut members = json!({ "content": list(content), "refusal": null });
        if self.of_reasoning {
            members["reasoning_content"] = list(reasoning);
        }
        members
    }

    /// The entry of a token. The model's own token is the likeliest one.
    fn entry(self, token: &str) -> Value {
        let mut entry = scored(token, 0);
        let others = 1..self.alternatives;
        let others = others.map(|rank| scored(&format!("{token}{rank}"), rank));
        let own = (self.alternatives > 0).then(|| entry.clone());
        entry["top_logprobs"] = own.into_iter().chain(others).collect();
        entry
    }
}

/// A token with a probability that depends on the token alone.
fn scored(token: &str, rank: u64) -> Value {
    let [first, ..] = hash(&[token.as_bytes()]);
    // Three decimals, all of them below zero.
    let thousandths = rank * 1000 + u64::from(first) + 1;
    let logprob: Value = format!("-{}.{:03}", thousandths / 1000, thousandths % 1000)
        .parse::<f64>()
        .map_or(Value::Null, Value::from);
    json!({ "token": token, "logprob": logprob, "bytes": token.as_bytes() })
}
