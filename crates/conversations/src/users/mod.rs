//! Users: people with a name, who prove a passphrase or a recovery code without giving it away.
//!
//! - [`name`]: names and when they are the same;
//! - [`token`]: what a session's cookie holds;
//! - [`attempts`]: limits how often a caller can guess;
//! - [`wire`]: the bodies of requests and answers.
//!
//! The server gets auth keys and stores hashes of them. It stores wrapped keys and cannot open them;
//! `docs/sealing.md` says how they are made. An unknown name and a wrong passphrase look the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use throughline_canonical::FaultKind;
use throughline_gateway::thinking::random::{self, NoRandomness};
use throughline_gateway::unix_ms;
use throughline_sealing::{AuthKey, AuthRecord, Keyring};

use self::attempts::{Attempt, Attempts};
use self::name::UserName;
use self::token::SessionToken;
use self::wire::{
    KdfSettings, Login, PassphraseChange, PublicUser, Recovery, RecoveryKeys, Registration,
    UserView, read_public_key, read_wrapped_key,
};
use crate::projects::ids::new_id;
use crate::projects::problem::Problem;
use crate::store::{Credential, CredentialChange, Store, User, UserSession};

pub mod attempts;
pub mod name;
pub mod token;
pub mod wire;

/// Who may register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegistrationRule {
    /// Everyone who reaches the server.
    #[default]
    Open,
    /// Only the first user.
    First,
    /// No one else, and no first user either.
    Closed,
}

/// The operator's settings of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserSettings {
    /// How long a session lasts.
    pub session: Duration,
    /// Who may register.
    pub registration: RegistrationRule,
}

/// All users of a server.
#[derive(Debug)]
pub struct Users {
    store: Arc<dyn Store>,
    keyring: Arc<Keyring>,
    attempts: Attempts,
    settings: UserSettings,
    /// Whether there is a user, as far as this process knows. Users are never removed.
    seen: AtomicBool,
    /// Checked in place of the record of an unknown name, so that it takes as long.
    dummy: AuthRecord,
}

/// A user who has just logged in.
#[derive(Debug)]
pub struct LoggedIn {
    /// The id of the user.
    pub user: String,
    /// What the user gets.
    pub view: UserView,
    /// The token of the new session.
    pub token: SessionToken,
    /// How long the session lasts.
    pub lifetime: Duration,
}

/// The result of a recovery.
#[derive(Debug)]
pub enum Recovered {
    /// The code is right. Nothing has changed.
    Opened(UserView),
    /// The user has a new passphrase and is logged in.
    Changed(LoggedIn),
}

impl Users {
    /// The users in a store.
    pub fn new(store: Arc<dyn Store>, keyring: Arc<Keyring>, settings: UserSettings) -> Self {
        let dummy = AuthRecord::new(&AuthKey::new([0; 32]), [0; 16]);
        let (attempts, seen) = (Attempts::default(), AtomicBool::new(false));
        Self { store, keyring, attempts, settings, seen, dummy }
    }

    /// Adds a user.
    pub async fn register(&self, address: &str, new: Registration) -> Result<PublicUser, Problem> {
        let rule = self.settings.registration;
        let is_closed = match rule {
            RegistrationRule::Open => false,
            RegistrationRule::First => self.has_users().await?,
            RegistrationRule::Closed => true,
        };
        if is_closed {
            return Err(registration_closed(rule));
        }
        let name = UserName::read_new(&new.name)?;
        let user = User {
            id: new_id("user"),
            name: name.shown.clone(),
            unique_name: name.unique.clone(),
            created: unix_ms(),
            kdf: new.kdf.check()?,
            passphrase: credential("", &new.auth_key.key("authKey")?, &new.wrapped_master_key)?,
            recovery: recovery(&new.recovery)?,
            public_key: read_public_key("publicKey", &new.public_key)?,
            wrapped_private_key: read_wrapped_key("wrappedPrivateKey", &new.wrapped_private_key)?,
        };
        let view = PublicUser::new(&user);
        self.count(Attempt::Proof, address, &name.unique)?;
        let is_first_only = rule == RegistrationRule::First;
        if is_first_only && !self.store.add_first_user(user.clone()).await? {
            return Err(registration_closed(rule));
        }
        if !is_first_only && !self.store.add_user(user).await? {
            let taken = format!("there is a user `{}`", name.shown);
            return Err(Problem::conflict("name-taken", taken).hint("choose another name"));
        }
        self.seen.store(true, Ordering::Relaxed);
        self.attempts.forgive(Attempt::Proof, address, &name.unique);
        Ok(view)
    }

    /// How a user's passphrase is stretched. For unknown names the answer is made up, and stays the
    /// same.
    pub async fn kdf(&self, address: &str, name: &str) -> Result<KdfSettings, Problem> {
        let (unique, user) = self.find(Attempt::Settings, address, name).await?;
        let made_up = KdfSettings::usual(&self.keyring.made_up_salt(&unique));
        Ok(user.and_then(|user| KdfSettings::stored(&user.kdf)).unwrap_or(made_up))
    }

    /// Logs a user in.
    pub async fn login(&self, address: &str, login: Login) -> Result<LoggedIn, Problem> {
        let key = login.auth_key.key("authKey")?;
        let (unique, user) = self.find(Attempt::Proof, address, &login.name).await?;
        let user = self.verify(user, |user| &user.passphrase, &key);
        let user = user.ok_or_else(|| wrong_proof("passphrase"))?;
        self.attempts.forgive(Attempt::Proof, address, &unique);
        self.start_session(&user).await
    }

    /// Ends a session.
    pub async fn logout(&self, token: &SessionToken) -> Result<(), Problem> {
        self.store.remove_session(token.hash()).await?;
        Ok(())
    }

    /// Replaces the passphrase of the user of a session. The user's other sessions end.
    pub async fn change_passphrase(
        &self,
        address: &str,
        session: &UserSession,
        change: PassphraseChange,
    ) -> Result<UserView, Problem> {
        let key = change.auth_key.key("authKey")?;
        let new_key = change.new_auth_key.key("newAuthKey")?;
        let kdf = change.kdf.check()?;
        let passphrase = credential("", &new_key, &change.wrapped_master_key)?;
        let user = self.user_of(session).await?;
        self.count(Attempt::Proof, address, &user.unique_name)?;
        let user = self.verify(Some(user), |user| &user.passphrase, &key);
        let user = user.ok_or_else(|| wrong_proof("passphrase"))?;
        self.attempts.forgive(Attempt::Proof, address, &user.unique_name);
        let changed = User { kdf, passphrase, ..user.clone() };
        self.write_credentials(&user, &changed, Some(session)).await?;
        Ok(UserView::of_session(&changed, session))
    }

    /// Checks a recovery code, and sets a new passphrase if the request has one. Then all sessions of
    /// the user end, and a new one begins.
    pub async fn recover(&self, address: &str, request: Recovery) -> Result<Recovered, Problem> {
        let key = request.auth_key.key("authKey")?;
        let change = match (request.new_auth_key, request.kdf, request.wrapped_master_key) {
            (Some(new_key), Some(kdf), Some(wrapped)) => {
                let credential = credential("", &new_key.key("newAuthKey")?, &wrapped)?;
                Some((credential, kdf.check()?))
            }
            (None, None, None) if request.recovery.is_none() => None,
            _ => {
                let rule = "must come with `kdf` and `wrappedMasterKey`, or all of them stay away";
                return Err(Problem::invalid("newAuthKey", rule));
            }
        };
        let new_code = request.recovery.as_ref().map(recovery).transpose()?;
        let (unique, user) = self.find(Attempt::Proof, address, &request.name).await?;
        let user = self.verify(user, |user| &user.recovery, &key);
        let user = user.ok_or_else(|| wrong_proof("recovery code"))?;
        self.attempts.forgive(Attempt::Proof, address, &unique);
        let Some((passphrase, kdf)) = change else {
            return Ok(Recovered::Opened(UserView::opened(&user, &user.recovery)));
        };
        let recovery = new_code.unwrap_or_else(|| user.recovery.clone());
        let changed = User { kdf, passphrase, recovery, ..user.clone() };
        self.write_credentials(&user, &changed, None).await?;
        Ok(Recovered::Changed(self.start_session(&changed).await?))
    }

    /// Who has this token. `None` if no user is registered yet: then a caller is its key.
    pub async fn identify(
        &self,
        token: Option<&SessionToken>,
    ) -> Result<Option<UserSession>, Problem> {
        if let Some(token) = token
            && let Some(session) = self.store.session(token.hash()).await?
            && session.expires > unix_ms()
        {
            return Ok(Some(session));
        }
        match self.has_users().await? {
            false => Ok(None),
            true => Err(not_logged_in()),
        }
    }

    /// The session with this token.
    pub async fn session(&self, token: Option<&SessionToken>) -> Result<UserSession, Problem> {
        self.identify(token).await?.ok_or_else(no_users)
    }

    /// The user of a session.
    pub async fn view(&self, session: &UserSession) -> Result<UserView, Problem> {
        Ok(UserView::of_session(&self.user_of(session).await?, session))
    }

    /// What others may know about a user.
    pub async fn public(&self, name: &str) -> Result<PublicUser, Problem> {
        Ok(PublicUser::new(&self.named(name).await?))
    }

    async fn named(&self, name: &str) -> Result<User, Problem> {
        let user = match UserName::read(name) {
            Some(name) => self.store.user_named(&name.unique).await?,
            None => None,
        };
        user.ok_or_else(|| Problem::not_found("user", name).hint("check the name"))
    }

    /// Whether anybody is registered.
    async fn has_users(&self) -> Result<bool, Problem> {
        if self.seen.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let has_users = self.store.has_users().await?;
        self.seen.fetch_or(has_users, Ordering::Relaxed);
        Ok(has_users)
    }

    /// Counts an attempt and looks the user up. Also returns the name that counts: for a text that no
    /// user can have as a name, it is empty.
    async fn find(
        &self,
        attempt: Attempt,
        address: &str,
        name: &str,
    ) -> Result<(String, Option<User>), Problem> {
        let unique = UserName::read(name).map(|name| name.unique).unwrap_or_default();
        self.count(attempt, address, &unique)?;
        let user = self.store.user_named(&unique).await?;
        Ok((unique, user))
    }

    fn count(&self, attempt: Attempt, address: &str, unique_name: &str) -> Result<(), Problem> {
        let counted = self.attempts.count(attempt, address, unique_name, Instant::now());
        counted.map_err(|wait| {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            let problem =
                Problem::new(FaultKind::RateLimited, "too-many-attempts", "too many attempts");
            problem.hint(format!("try again in {seconds} s")).retry_after(seconds)
        })
    }

    /// The user, if this is the key of the credential. It takes as long if there is no such user.
    fn verify(
        &self,
        user: Option<User>,
        credential: fn(&User) -> &Credential,
        key: &AuthKey,
    ) -> Option<User> {
        let record = user.as_ref().map(|user| credential(user).auth_record.as_slice());
        let record = record.and_then(AuthRecord::read);
        let is_known = record.is_some();
        let is_right = record.as_ref().unwrap_or(&self.dummy).verify(key);
        user.filter(|_| is_known && is_right)
    }

    async fn start_session(&self, user: &User) -> Result<LoggedIn, Problem> {
        let token = SessionToken::new()?;
        let now = unix_ms();
        let session = UserSession {
            token: token.hash(),
            user: user.id.clone(),
            created: now,
            expires: crate::sealed_store::expires(now, self.settings.session),
        };
        let view = UserView::of_session(user, &session);
        self.store.add_session(session).await?;
        Ok(LoggedIn { user: user.id.clone(), view, token, lifetime: self.settings.session })
    }

    async fn user_of(&self, session: &UserSession) -> Result<User, Problem> {
        self.store.user(&session.user).await?.ok_or_else(not_logged_in)
    }

    async fn write_credentials(
        &self,
        before: &User,
        after: &User,
        kept: Option<&UserSession>,
    ) -> Result<(), Problem> {
        let change = CredentialChange {
            user: before.id.clone(),
            from: before.passphrase.clone(),
            kdf: after.kdf.clone(),
            passphrase: after.passphrase.clone(),
            recovery: after.recovery.clone(),
            kept_session: kept.map(|session| session.token),
        };
        match self.store.change_credentials(change).await? {
            true => Ok(()),
            false => Err(Problem::conflict(
                "credentials-changed",
                "the passphrase was changed meanwhile",
            )
            .hint("log in with the present passphrase")),
        }
    }
}

impl From<NoRandomness> for Problem {
    fn from(error: NoRandomness) -> Self {
        Self::new(FaultKind::Internal, "no-randomness", error.to_string())
    }
}

/// What is stored of a secret. `within` is the member that has both values.
fn credential(within: &str, key: &AuthKey, wrapped: &str) -> Result<Credential, Problem> {
    let member = format!("{within}wrappedMasterKey");
    Ok(Credential {
        auth_record: AuthRecord::new(key, random::secret()?).write().to_vec(),
        wrapped_master_key: read_wrapped_key(&member, wrapped)?,
    })
}

fn recovery(keys: &RecoveryKeys) -> Result<Credential, Problem> {
    let key = keys.auth_key.key("recovery.authKey")?;
    credential("recovery.", &key, &keys.wrapped_master_key)
}

/// The error of a registration that the operator does not allow.
fn registration_closed(rule: RegistrationRule) -> Problem {
    let detail = match rule {
        RegistrationRule::First => "only the first user may register at this server",
        RegistrationRule::Open | RegistrationRule::Closed => "this server takes no registrations",
    };
    Problem::new(FaultKind::Forbidden, "registration-closed", detail)
        .hint("ask the operator, who can change `users.registration` and restart the server")
}

/// The error for an unknown name and for a wrong secret: a caller does not learn which names exist.
fn wrong_proof(what: &str) -> Problem {
    let wrong = format!("the name or the {what} is wrong");
    Problem::new(FaultKind::Unauthenticated, "wrong-credentials", wrong)
        .hint("check both; letter case of the name does not matter")
}

/// The error of a request without a session.
fn not_logged_in() -> Problem {
    Problem::new(FaultKind::Unauthenticated, "not-logged-in", "the request has no valid session")
        .hint("log in with POST /api/auth/login and send the cookie that it sets")
        .with("hasUsers", true)
}

/// The error of a request that asks for a session before there is any user.
fn no_users() -> Problem {
    Problem::new(FaultKind::Unauthenticated, "not-logged-in", "this server has no users yet")
        .hint("register the first one with POST /api/auth/register")
        .with("hasUsers", false)
}
