//! Verification of what a client sends back: reasoning that is ours and unaltered, and calls with
//! the reasoning they came from.

use std::collections::HashSet;

use http::StatusCode;

use super::ask::{Ask, Item, Kind, is_reference};
use super::marks;
use super::memory::Memory;
use super::refusal::of_input;
use crate::openai::{missing, refused};
use crate::refusal::Refusal;
use crate::signing::{self, Hash, Signer, hash};

/// What verification runs against.
pub(crate) struct Verifier<'a> {
    pub(crate) signer: &'a Signer,
    pub(crate) identity: &'a str,
    /// The family that is to read the reasoning; nothing where tokens are counted for no model.
    pub(crate) family: Option<&'a str>,
    pub(crate) memory: &'a Memory,
}

/// Refuses what names something that is not stored.
pub(crate) fn check_references(ask: &Ask) -> Result<(), Refusal> {
    if let Some(id) = &ask.lost {
        let message = format!("Previous response with id '{id}' not found.");
        let refusal = refused("previous_response_id", Some("previous_response_not_found"), message);
        return Err(Refusal { status: StatusCode::NOT_FOUND, ..refusal });
    }
    let mut items = ask.items.iter();
    let reference = items.find(|item| is_reference(&item.value));
    match reference {
        Some(item) => Err(not_found(item.get("id").unwrap_or_default(), ask.store)),
        None => Ok(()),
    }
}

impl Verifier<'_> {
    /// Refuses reasoning that is not as it was made or not where it was, and calls that lost theirs.
    pub(crate) fn check(&self, ask: &Ask) -> Result<(), Refusal> {
        // The names of the reasoning so far, hashed as the encrypted content holds them.
        let mut known: HashSet<Hash> = HashSet::new();
        for (index, item) in ask.items.iter().enumerate() {
            match (item.kind(), item.place) {
                (Kind::Reasoning, None) => {
                    known.extend(item.get("id").map(|id| hash(&[id.as_bytes()])));
                }
                (Kind::Reasoning, Some(place)) => {
                    known.insert(self.check_reasoning(item, place, ask.store)?);
                    check_following(item, place, ask.items.get(index + 1))?;
                }
                (Kind::Call, _) => self.check_call(item, &known)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The name of a reasoning item that may come back.
    fn check_reasoning(&self, item: &Item, place: usize, store: bool) -> Result<Hash, Refusal> {
        let id = item.get("id");
        let name = id.map(|id| hash(&[id.as_bytes()]));
        let Some(encrypted) = item.get("encrypted_content") else {
            // Then it has to be stored, and found by its name.
            let Some((id, name)) = id.zip(name) else {
                return Err(missing(&format!("input[{place}].id")));
            };
            return match self.memory.item(id) {
                Some(_) => Ok(name),
                None => Err(not_found(id, store)),
            };
        };
        let opened = self.signer.open(signing::Kind::Encrypted, encrypted);
        // Another family's is as good as another organisation's.
        let reads = |family: &str| self.family.is_none_or(|own| own == family);
        let opened = opened.filter(|opened| reads(&opened.family));
        let Some(opened) = opened else {
            return Err(unverified(&abridged(encrypted), UNREADABLE));
        };
        if let Some(id) = id
            && name != Some(opened.shown)
        {
            return Err(unverified(&format!("for item {id}"), MISNAMED));
        }
        Ok(opened.shown)
    }

    fn check_call(&self, item: &Item, known: &HashSet<Hash>) -> Result<(), Refusal> {
        let id = item.get("id").unwrap_or_default();
        let Some(required) = marks::required(self.identity, id) else {
            return Ok(());
        };
        if known.contains(&hash(&[required.as_bytes()])) {
            return Ok(());
        }
        Err(of_input(
            StatusCode::BAD_REQUEST,
            format!(
                "Item '{id}' of type 'function_call' was provided without its required 'reasoning' item: '{required}'."
            ),
        ))
    }
}

const UNREADABLE: &str = "Encrypted content could not be decrypted or parsed.";
const MISNAMED: &str = "Encrypted content item_id did not match the target item id.";

fn unverified(what: &str, reason: &str) -> Refusal {
    Refusal {
        code: Some("invalid_encrypted_content"),
        ..Refusal::invalid(format!(
            "The encrypted content {what} could not be verified. Reason: {reason}"
        ))
    }
}

/// The first and the last four letters of a blob.
fn abridged(blob: &str) -> String {
    let letters: Vec<char> = blob.chars().collect();
    let start: String = letters.iter().take(4).collect();
    let end: String = letters.iter().skip(letters.len().saturating_sub(4)).collect();
    format!("{start}...{end}")
}

/// Reasoning stands right before what it led to.
fn check_following(item: &Item, place: usize, next: Option<&Item>) -> Result<(), Refusal> {
    if next.is_some_and(|next| next.kind().is_said()) {
        return Ok(());
    }
    let place = format!("input[{place}]");
    let id = item.get("id").unwrap_or(&place);
    Err(of_input(
        StatusCode::BAD_REQUEST,
        format!(
            "Item '{id}' of type 'reasoning' was provided without its required following item."
        ),
    ))
}

fn not_found(id: &str, store: bool) -> Refusal {
    let hint = if store {
        ""
    } else {
        " Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."
    };
    of_input(StatusCode::NOT_FOUND, format!("Item with id '{id}' not found.{hint}"))
}
