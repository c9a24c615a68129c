//! Finds the history that a request refers to.

use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::openai_responses::state::{StatefulRequest, needs_its_maker};

use super::Responses;
use super::stored::{StoredResponse, is_plain};
use crate::sealed_store::Ancestry;

/// The history of a request.
pub(super) enum History {
    /// There is none.
    Nothing,
    /// The stored turns and the id of the last one.
    Known { turns: Vec<StoredResponse>, head: Option<String> },
    /// The history is not stored here. The fault names what is missing.
    Unknown(Fault),
}

/// Whether only this backend has the reasoning of these turns.
pub(super) fn only_backend_has_reasoning(turns: &[StoredResponse], backend: &str) -> bool {
    let last = turns.last().and_then(|stored| stored.native.as_deref());
    last == Some(backend) && turns.iter().any(|stored| needs_its_maker(&stored.response))
}

impl Responses {
    /// Finds the history of a request.
    pub(super) async fn history(
        &self,
        owner: &str,
        request: &StatefulRequest,
    ) -> Result<History, Fault> {
        match (request.previous(), request.conversation()) {
            (Some(id), _) => self.history_of_response(owner, id).await,
            (None, Some(id)) => self.history_of_conversation(owner, id).await,
            (None, None) => Ok(History::Nothing),
        }
    }

    /// A response and the turns before it.
    async fn history_of_response(&self, owner: &str, id: &str) -> Result<History, Fault> {
        let refused = |why: String| Fault::at("previous_response_id", why);
        let not_found = || {
            refused(format!("Previous response with id '{id}' not found."))
                .with_code("previous_response_not_found")
        };
        if let Some(run) = self.run(id)
            && !self.sealed_store.is_foreign(owner, id).await?
        {
            if !run.has_ended() {
                return Err(refused(format!(
                    "`{id}` is still running; continue when its `status` is `completed`"
                )));
            }
            // While its end cannot be stored, its output would be missing.
            if !run.ended().await {
                return Err(not_found());
            }
        }
        let ancestry = self.ancestry(owner, id).await?;
        let ancestry =
            ancestry.filter(|ancestry| ancestry.turns.last().is_some_and(|stored| !stored.deleted));
        let Some(ancestry) = ancestry else {
            return match !is_plain(id) || self.sealed_store.is_foreign(owner, id).await? {
                true => Err(not_found()),
                false => Ok(History::Unknown(not_found())),
            };
        };
        match ancestry.missing {
            Some(missing) => Err(refused(format!(
                "the history of `{id}` is incomplete: `{missing}` is not stored any more; send the \
                 conversation as `input`"
            ))
            .with_code("previous_response_not_found")),
            None => Ok(History::Known { turns: ancestry.turns, head: Some(id.to_owned()) }),
        }
    }

    /// The turns of a conversation.
    async fn history_of_conversation(&self, owner: &str, id: &str) -> Result<History, Fault> {
        let Some((reference, content)) = self.conversation(owner, id).await? else {
            let what = format!("Conversation with id '{id}' not found.");
            let fault = Fault::new(FaultKind::NotFound, what);
            return match is_plain(id) {
                true => Ok(History::Unknown(fault)),
                false => Err(fault),
            };
        };
        let is_incomplete = content.incomplete || self.incomplete.lock().contains(id);
        let turns = match &reference.head {
            _ if is_incomplete => None,
            None => Some(Vec::new()),
            Some(head) => match self.ancestry(owner, head).await? {
                Some(Ancestry { turns, missing: None }) => Some(turns),
                _ => None,
            },
        };
        // Continuing with the rest would be another conversation.
        let turns = turns.ok_or_else(|| {
            Fault::new(
                FaultKind::NotFound,
                format!(
                    "Conversation with id '{id}' is not stored any more, or only in part; create \
                     another one."
                ),
            )
        })?;
        Ok(History::Known { turns: content.without_removed(turns), head: reference.head })
    }

    /// The history of a request, from what is stored here: the turns, and the id of the last one.
    pub(super) async fn known_history(
        &self,
        owner: &str,
        request: &StatefulRequest,
    ) -> Result<(Vec<StoredResponse>, Option<String>), Fault> {
        match self.history(owner, request).await? {
            History::Nothing => Ok((Vec::new(), None)),
            History::Known { turns, head } => Ok((turns, head)),
            History::Unknown(fault) => Err(fault),
        }
    }
}
