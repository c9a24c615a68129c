//! The users of the store in RAM, and with whom they share projects.

use std::collections::BTreeMap;

use throughline_gateway::thinking::store::StoreFuture;

use crate::in_memory::{InMemory, ready};
use crate::store::{
    CredentialChange, KeyChange, Member, MemberStore, TokenHash, User, UserSession, UserStore,
};

/// Users, their sessions, and members of projects.
#[derive(Debug, Default)]
pub(crate) struct Users {
    users: BTreeMap<String, User>,
    sessions: BTreeMap<TokenHash, UserSession>,
    /// By project and user.
    members: BTreeMap<(String, String), Member>,
}

impl Users {
    /// Removes sessions that have ended. Returns how many.
    pub(crate) fn remove_expired(&mut self, now: u64) -> u64 {
        let before = self.sessions.len();
        self.sessions.retain(|_, session| session.expires > now);
        (before - self.sessions.len()) as u64
    }

    /// Whether a project is shared with a user.
    pub(crate) fn is_member(&self, project: &str, user: &str) -> bool {
        self.members.contains_key(&key(project, user))
    }

    /// Forgets the members of a project.
    pub(crate) fn remove_members(&mut self, project: &str) {
        self.members.retain(|(of, _), _| of != project);
    }

    fn share(&mut self, member: Member) {
        let key = key(&member.project, &member.user);
        let known = self.members.entry(key).or_insert_with(|| member.clone());
        known.wrapped_key = member.wrapped_key;
    }

    fn members_of(&self, project: &str) -> Vec<Member> {
        let of_project = self.members.values().filter(|member| member.project == project);
        let mut members: Vec<Member> = of_project.cloned().collect();
        members.sort_by(|one, other| (one.created, &one.user).cmp(&(other.created, &other.user)));
        members
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

    fn add_first_user(&self, user: User) -> StoreFuture<'_, bool> {
        let mut users = self.users.lock();
        let is_first = users.users.is_empty();
        if is_first {
            users.users.insert(user.id.clone(), user);
        }
        ready(is_first)
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

impl MemberStore for InMemory {
    fn put_member(&self, member: Member, key_check: Option<String>) -> StoreFuture<'_, bool> {
        let contents = self.contents.lock();
        let project = contents.projects.get(&member.project);
        if project.is_none_or(|project| project.facts.key_check != key_check) {
            return ready(false);
        }
        self.users.lock().share(member);
        ready(true)
    }

    fn member(&self, project: &str, user: &str) -> StoreFuture<'_, Option<Member>> {
        ready(self.users.lock().members.get(&key(project, user)).cloned())
    }

    fn members(&self, project: &str) -> StoreFuture<'_, Vec<Member>> {
        ready(self.users.lock().members_of(project))
    }

    fn remove_member(&self, project: &str, user: &str) -> StoreFuture<'_, bool> {
        ready(self.users.lock().members.remove(&key(project, user)).is_some())
    }

    fn change_key(&self, change: KeyChange) -> StoreFuture<'_, bool> {
        let mut contents = self.contents.lock();
        let mut users = self.users.lock();
        let KeyChange { project, previous, key_check, wrapped_keys } = change;
        let Some(project) = contents.projects.get_mut(&project) else {
            return ready(false);
        };
        let members = users.members_of(&project.id);
        let is_member = |user: &String| members.iter().any(|member| member.user == *user);
        let is_known =
            wrapped_keys.iter().all(|(user, _)| is_member(user) || *user == project.owner);
        let is_present = project.facts.key_check.as_ref() == Some(&previous.key_check);
        if !(is_known && is_present) {
            return ready(false);
        }
        project.facts.key_check = Some(key_check);
        project.facts.previous_keys.insert(0, previous);
        for member in users.members.values_mut().filter(|member| member.project == project.id) {
            member.wrapped_key = None;
        }
        for (user, wrapped_key) in wrapped_keys {
            let (created, wrapped_key) = (project.created, Some(wrapped_key));
            users.share(Member { project: project.id.clone(), user, created, wrapped_key });
        }
        ready(true)
    }
}

/// The key of a member in the map.
fn key(project: &str, user: &str) -> (String, String) {
    (project.to_owned(), user.to_owned())
}
