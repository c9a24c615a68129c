//! Signatures of reasoning and calls. `compose` makes them, `verify` checks them.

use serde_json::Value;

use super::variants::{CallSigning, Variant};
use crate::signing::{Claim, Hash, Opened, SignatureKind, Signer, hash};

/// The prefix of a signature that depends on nothing before it.
pub(crate) const NO_PREFIX: Hash = [0; 32];

/// Separates a call's id from its signature, if the id carries one.
pub(crate) const ID_SEPARATOR: &str = "__thought__";

/// Signs a thought: its visible text, its full text and the details before it.
pub(crate) fn sign(
    signer: &Signer,
    variant: &Variant,
    shown: &str,
    hidden: &str,
    prefix: Hash,
    nonce: u64,
) -> String {
    let claim = Claim { family: variant.name, shown, hidden, prefix, nonce, ordinal: 0 };
    signer.sign(SignatureKind::Detail, &claim)
}

/// Opens a signature that this kind of server made.
pub(crate) fn open(signer: &Signer, variant: &Variant, signature: &str) -> Option<Opened> {
    let opened = signer.open(SignatureKind::Detail, signature)?;
    (opened.family == variant.name).then_some(opened)
}

/// The prefix of the next detail. It depends on all details before it, so none of them can be
/// changed, moved or left out.
pub(crate) fn next(prefix: Hash, kind: &str, text: &str, signature: &str) -> Hash {
    hash(&[&prefix, kind.as_bytes(), text.as_bytes(), signature.as_bytes()])
}

/// What the signature of a call protects. Arguments are compared as JSON, because clients may
/// reformat them.
pub(crate) fn of_call(name: &str, arguments: &str) -> String {
    let mut arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    arguments.sort_all_objects();
    format!("{name} {arguments}")
}

/// How calls of this model are signed. Of the models behind LiteLLM, only Gemini signs calls.
pub(crate) fn call_signing(variant: &Variant, model: &str) -> CallSigning {
    match variant.call_signing {
        CallSigning::ProviderFields if !model.to_lowercase().contains("gemini") => {
            CallSigning::Never
        }
        signs => signs,
    }
}
