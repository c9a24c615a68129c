//! Verifies what a client sends back: reasoning must be from this identity and unaltered, and calls
//! need the reasoning they came from.

use std::collections::HashSet;

use http::StatusCode;

use super::compact;
use super::item_ids;
use super::refusal::input_refusal;
use super::request::{Item, ItemKind, ParsedRequest, is_reference};
use super::store::ResponseStore;
use crate::openai::{missing, refused};
use crate::refusal::Refusal;
use crate::signing::{self, Hash, Signer, hash};

/// What the verification depends on.
pub(crate) struct Verifier<'a> {
    pub(crate) signer: &'a Signer,
    pub(crate) identity: &'a str,
    /// The family of the model that reads the reasoning; `None` if tokens are counted without a
    /// model.
    pub(crate) family: Option<&'a str>,
    pub(crate) responses: &'a ResponseStore,
}

/// Refuses references to responses and items that are not stored.
pub(crate) fn check_references(request: &ParsedRequest) -> Result<(), Refusal> {
    if let Some(id) = &request.lost {
        let message = format!("Previous response with id '{id}' not found.");
        return Err(refused("previous_response_id", Some("previous_response_not_found"), message));
    }
    let mut items = request.items.iter();
    let reference = items.find(|item| is_reference(&item.value));
    match reference {
        Some(item) => Err(not_found(item.get("id").unwrap_or_default(), request.store)),
        None => Ok(()),
    }
}

impl Verifier<'_> {
    /// Refuses altered or misplaced reasoning, and calls without the reasoning they came from.
    pub(crate) fn check(&self, request: &ParsedRequest) -> Result<(), Refusal> {
        // The ids of the reasoning so far, hashed as in the encrypted content.
        let mut known: HashSet<Hash> = HashSet::new();
        for (index, item) in request.items.iter().enumerate() {
            match (item.kind(), item.position) {
                (ItemKind::Reasoning, None) => {
                    known.extend(item.get("id").map(|id| hash(&[id.as_bytes()])));
                }
                (ItemKind::Reasoning, Some(position)) => {
                    known.insert(self.check_reasoning(item, position, request.store)?);
                    check_following(item, position, request.items.get(index + 1))?;
                }
                (ItemKind::Call, _) => self.check_call(item, &known)?,
                (ItemKind::Other, _) => compact::verify(item, self.signer)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks a reasoning item and returns the hash of its id.
    fn check_reasoning(&self, item: &Item, position: usize, store: bool) -> Result<Hash, Refusal> {
        let id = item.get("id");
        let name = id.map(|id| hash(&[id.as_bytes()]));
        let Some(encrypted) = item.get("encrypted_content") else {
            // Without content, the item must be stored and is found by its id.
            let Some((id, name)) = id.zip(name) else {
                return Err(missing(&format!("input[{position}].id")));
            };
            return match self.responses.item(id) {
                Some(_) => Ok(name),
                None => Err(not_found(id, store)),
            };
        };
        let opened = self.signer.open(signing::SignatureKind::Encrypted, encrypted);
        // Content of another model family is refused like content of another organisation.
        let reads = |family: &str| self.family.is_none_or(|own| own == family);
        let opened = opened.filter(|opened| reads(&opened.family));
        let Some(opened) = opened else {
            return Err(unreadable(encrypted));
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
        let Some(required) = item_ids::required(self.identity, id) else {
            return Ok(());
        };
        if known.contains(&hash(&[required.as_bytes()])) {
            return Ok(());
        }
        Err(input_refusal(
            StatusCode::BAD_REQUEST,
            format!(
                "Item '{id}' of type 'function_call' was provided without its required 'reasoning' item: '{required}'."
            ),
        ))
    }
}

const UNREADABLE: &str = "Encrypted content could not be decrypted or parsed.";
const MISNAMED: &str = "Encrypted content item_id did not match the target item id.";

/// The refusal of a value that this identity cannot open.
pub(crate) fn unreadable(encrypted: &str) -> Refusal {
    unverified(&abridged(encrypted), UNREADABLE)
}

fn unverified(what: &str, reason: &str) -> Refusal {
    Refusal {
        code: Some("invalid_encrypted_content"),
        ..Refusal::invalid(format!(
            "The encrypted content {what} could not be verified. Reason: {reason}"
        ))
    }
}

/// The first and the last four characters of a value.
fn abridged(blob: &str) -> String {
    let letters: Vec<char> = blob.chars().collect();
    let start: String = letters.iter().take(4).collect();
    let end: String = letters.iter().skip(letters.len().saturating_sub(4)).collect();
    format!("{start}...{end}")
}

/// A reasoning item must be followed by the item it led to.
fn check_following(item: &Item, position: usize, next: Option<&Item>) -> Result<(), Refusal> {
    if next.is_some_and(|next| next.kind().is_from_model()) {
        return Ok(());
    }
    let position = format!("input[{position}]");
    let id = item.get("id").unwrap_or(&position);
    Err(input_refusal(
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
    input_refusal(StatusCode::NOT_FOUND, format!("Item with id '{id}' not found.{hint}"))
}
