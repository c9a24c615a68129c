//! The users of the store in RAM.

use std::collections::BTreeMap;

use throughline_gateway::thinking::store::StoreFuture;

use crate::in_memory::{InMemory, ready};
use crate::store::{CredentialChange, TokenHash, User, UserSession, UserStore};

/// Users and their sessions.
#[derive(Debug, Default)]
pub(crate) struct Users {
    users: BTreeMap<String, User>,
    sessions: BTreeMap<TokenHash, UserSession>,
}

impl Users {
    /// Removes sessions that have ended. Returns how many.
    pub(crate) fn remove_expired(&mut self, now: u64) -> u64 {
        let before = self.sessions.len();
        self.sessions.retain(|_, session| session.expires > now);
        (before - self.sessions.len()) as u64
    }

    fn named(&self, unique_name: &str) -> Option<&User> {
        self.users.values().find(|user| user.unique_name == unique_name)
    }

    fn change_credentials(&mut self, change: CredentialChange) -> bool {
        let user = self.users.get_mut(&change.user);
        let Some(user) = user.filter(|user| user.passphrase == change.from) else {
            return false;
        };
        user.kdf = change.kdf;
        user.passphrase = change.passphrase;
        user.recovery = change.recovery;
        let is_kept = |session: &UserSession| {
            session.user != change.user || Some(session.token) == change.kept_session
        };
        self.sessions.retain(|_, session| is_kept(session));
        true
    }
}

impl UserStore for InMemory {
    fn add_user(&self, user: User) -> StoreFuture<'_, bool> {
        let mut users = self.users.lock();
        if users.named(&user.unique_name).is_some() {
            return ready(false);
        }
        users.users.insert(user.id.clone(), user);
        ready(true)
    }

    fn user(&self, id: &str) -> StoreFuture<'_, Option<User>> {
        ready(self.users.lock().users.get(id).cloned())
    }

    fn user_named(&self, unique_name: &str) -> StoreFuture<'_, Option<User>> {
        ready(self.users.lock().named(unique_name).cloned())
    }

    fn has_users(&self) -> StoreFuture<'_, bool> {
        ready(!self.users.lock().users.is_empty())
    }

    fn change_credentials(&self, change: CredentialChange) -> StoreFuture<'_, bool> {
        ready(self.users.lock().change_credentials(change))
    }

    fn add_session(&self, session: UserSession) -> StoreFuture<'_, ()> {
        self.users.lock().sessions.insert(session.token, session);
        ready(())
    }

    fn session(&self, token: TokenHash) -> StoreFuture<'_, Option<UserSession>> {
        ready(self.users.lock().sessions.get(&token).cloned())
    }

    fn remove_session(&self, token: TokenHash) -> StoreFuture<'_, bool> {
        ready(self.users.lock().sessions.remove(&token).is_some())
    }
}
