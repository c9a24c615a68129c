//! Refuses a request if the caller would get something else than it asked for: several answers,
//! the probabilities of tokens, an answer in a format, an end at a stop sequence. Settings that only
//! tune the answer are adapted, and the losses report them.
//!
//! The caller accepts such a loss with a header, the operator with `strict_settings = false`.

use http::HeaderMap;
use throughline_canonical::{Fault, Loss, LossSubject};
use throughline_codec::dialects::client_defaults::UNSUPPORTED_PARAMETER;

use crate::headers::ACCEPT_LOSS;
use crate::turn::Attempt;

/// Refuses the request if one of its losses changes the result.
pub(crate) fn check(attempt: &Attempt<'_>, losses: &[Loss]) -> Result<(), Fault> {
    let (request, backend) = (attempt.request, attempt.backend);
    if !backend.strict_settings {
        return Ok(());
    }
    let client = request.incoming.dialect.defaults();
    let accepted = AcceptedLosses::read(&request.incoming.headers);
    let mut refused = losses.iter().filter_map(Loss::changed_result).filter_map(|subject| {
        let member = client.member(subject);
        (!accepted.contains(subject, member)).then_some((subject, member))
    });
    let Some((first, member)) = refused.next() else {
        return Ok(());
    };
    let (mut terms, mut others) = (vec![first.as_str()], Vec::new());
    for (subject, member) in refused {
        if !terms.contains(&subject.as_str()) {
            terms.push(subject.as_str());
            others.push(format!("`{member}`"));
        }
    }
    let others = match others.as_slice() {
        [] => String::new(),
        others => format!(" (nor can {})", others.join(", ")),
    };
    let why = format!(
        "cannot be honoured by backend `{}`{others}; leave it out, or accept the loss with the header \
         `{ACCEPT_LOSS}: {}` or with `strict_settings = false` on the backend",
        backend.name,
        terms.join(", ")
    );
    Err(Fault::at(member, why).with_code(UNSUPPORTED_PARAMETER))
}

/// Refuses the request if it refers to a conversation that this backend cannot have: it would be
/// answered from a part of the conversation, and no client can accept that loss.
pub(crate) fn check_state(attempt: &Attempt<'_>, losses: &[Loss]) -> Result<(), Fault> {
    let is_state =
        |loss: &Loss| matches!(loss, Loss::PartOmitted { part: LossSubject::StoredResponse, .. });
    if !losses.iter().any(is_state) {
        return Ok(());
    }
    let why = format!(
        "not found at backend `{}`, nor is the conversation stored here; send the whole conversation",
        attempt.backend.name
    );
    let client = attempt.request.incoming.dialect.defaults();
    Err(match client.missing_state {
        Some((member, code)) => Fault::at(member, why).with_code(code),
        None => Fault::at(client.member(&LossSubject::StoredResponse), why),
    })
}

/// The losses that a caller accepts.
#[derive(Debug, Default)]
struct AcceptedLosses {
    all: bool,
    names: Vec<String>,
}

impl AcceptedLosses {
    fn read(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT_LOSS).iter().filter_map(|value| value.to_str().ok());
        let names = values.flat_map(|value| value.split(',')).map(str::trim);
        let names: Vec<String> =
            names.filter(|name| !name.is_empty()).map(str::to_ascii_lowercase).collect();
        Self { all: names.iter().any(|name| name == "*"), names }
    }

    /// Whether a loss is accepted, by its term or by the member of the caller's dialect. The groups
    /// that a member is in may be left out.
    fn contains(&self, subject: &LossSubject, member: &str) -> bool {
        let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
        let is_name = |name: &String| {
            subject.as_str().eq_ignore_ascii_case(name)
                || last(member).eq_ignore_ascii_case(&last(name))
        };
        self.all || self.names.iter().any(is_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(value: &str) -> AcceptedLosses {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_LOSS, value.parse().unwrap());
        AcceptedLosses::read(&headers)
    }

    #[test]
    fn loss_is_accepted_by_its_term_or_its_member() {
        let member = "generationConfig.stopSequences";
        for (value, accepts) in [
            ("stop", true),
            ("n, STOP", true),
            ("stopsequences", true),
            ("generationConfig.stopSequences", true),
            ("*", true),
            ("n,logprobs", false),
            ("", false),
        ] {
            let accepted = accepted(value);
            assert_eq!(accepted.contains(&LossSubject::Stop, member), accepts, "{value}");
        }
        assert!(!AcceptedLosses::default().contains(&LossSubject::N, "n"));
    }
}
