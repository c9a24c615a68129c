//! Marks: what signed reasoning vouches for. Made in `compose`, looked at in `verify`.

use serde_json::Value;

use super::variants::{SignsCalls, Variant};
use crate::signing::{Claim, Hash, Kind, Opened, Signer, hash};

/// The place of a mark that depends on nothing before it.
pub(crate) const ANYWHERE: Hash = [0; 32];

/// What stands between a call's id and its signature, where the id carries one.
pub(crate) const IN_ID: &str = "__thought__";

/// Signs a thought: what is seen of it, all of it, and what came before it.
pub(crate) fn sign(
    signer: &Signer,
    variant: &Variant,
    shown: &str,
    hidden: &str,
    place: Hash,
    nonce: u64,
) -> String {
    let claim = Claim { family: variant.name, shown, hidden, prefix: place, nonce };
    signer.sign(Kind::Detail, &claim)
}

/// Opens a mark that this kind of server made.
pub(crate) fn open(signer: &Signer, variant: &Variant, mark: &str) -> Option<Opened> {
    let opened = signer.open(Kind::Detail, mark)?;
    (opened.family == variant.name).then_some(opened)
}

/// Where the next detail of a message stands, so that none can be changed, moved or left out
/// before it.
pub(crate) fn next(place: Hash, kind: &str, text: &str, mark: &str) -> Hash {
    hash(&[&place, kind.as_bytes(), text.as_bytes(), mark.as_bytes()])
}

/// What the signature of a call is about. Arguments are compared as JSON: they may be written anew.
pub(crate) fn of_call(name: &str, arguments: &str) -> String {
    let mut arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    arguments.sort_all_objects();
    format!("{name} {arguments}")
}

/// How calls to this model are signed: behind LiteLLM there are many, of which only Gemini signs.
pub(crate) fn signs_calls(variant: &Variant, model: &str) -> SignsCalls {
    match variant.signs_calls {
        SignsCalls::ProviderFields if !model.to_lowercase().contains("gemini") => SignsCalls::Never,
        signs => signs,
    }
}
