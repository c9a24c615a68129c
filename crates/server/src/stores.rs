//! The databases of the server: opens those that `store.url` names, and finds the key that sealed
//! their data.

use std::sync::Arc;

use throughline_backends::postgres::PostgresStore;
use throughline_backends::sqlite::{SqliteConversations, SqliteStore, newest_sealed, read_fact};
use throughline_conversations::store::{SealedRows, Store as ConversationStore};
use throughline_gateway::thinking::VaultStore;
use throughline_gateway::thinking::store::{Snapshot, Store, StoreError};
use throughline_sealing::{KeyId, key_id};

use crate::config::{Config, StoreUrl};
use crate::keyring;

/// The database of the thinking memory and the vault, in the data directory.
pub const MEMORY_FILE: &str = "memory.db";

/// The open databases.
pub struct OpenStores {
    /// The thinking memory.
    pub memory: Arc<dyn Store>,
    /// The vault.
    pub vault: Arc<dyn VaultStore>,
    /// Conversations.
    pub conversations: Arc<dyn ConversationStore>,
    /// Each database, and how many migrations were applied to it.
    pub migrated: Vec<(String, usize)>,
    /// Where the data is, for messages.
    pub location: String,
    newest: Newest,
}

/// Where the newest sealed value is read.
enum Newest {
    Files([std::path::PathBuf; 2]),
    Postgres(PostgresStore),
}

impl OpenStores {
    /// Opens the databases and brings their tables up to date.
    pub async fn open(config: &Config) -> Result<Self, StoreError> {
        let conversations_file = match &config.store.url {
            StoreUrl::Sqlite(path) => path.clone(),
            StoreUrl::Postgres(url) => {
                let (store, migrated) = PostgresStore::migrate(url).await?;
                return Ok(Self {
                    memory: Arc::new(store.clone()),
                    vault: Arc::new(store.clone()),
                    conversations: Arc::new(store.conversations()),
                    location: format!("the {}", migrated.name),
                    migrated: vec![(migrated.name, migrated.applied)],
                    newest: Newest::Postgres(store),
                });
            }
        };
        let memory_file = config.data_dir.join(MEMORY_FILE);
        let store = SqliteStore::open(&memory_file).await?;
        let conversations = SqliteConversations::open(&conversations_file).await?;
        let store = Arc::new(store);
        Ok(Self {
            migrated: vec![
                (memory_file.display().to_string(), store.applied()),
                (conversations_file.display().to_string(), conversations.applied()),
            ],
            memory: store.clone(),
            vault: store,
            conversations: Arc::new(conversations),
            location: format!("`{}`", config.data_dir.display()),
            newest: Newest::Files([memory_file, conversations_file]),
        })
    }

    /// What the gateway starts with: everything, or only the facts of a database that others use too.
    /// The rest is looked up when a request needs it.
    pub async fn load(&self) -> Result<Snapshot, StoreError> {
        match self.memory.is_shared() {
            true => Ok(Snapshot { facts: self.memory.facts().await?, ..Snapshot::default() }),
            false => self.memory.load().await,
        }
    }

    /// The key that sealed the data. `None` if nothing is sealed yet.
    pub async fn last_key(&self, snapshot: &Snapshot) -> Result<Option<KeyId>, StoreError> {
        let fact = snapshot.facts.get(keyring::FACT);
        if let Some(id) = fact.and_then(|id| keyring::read_id(id)) {
            return Ok(Some(id));
        }
        match &self.newest {
            Newest::Postgres(store) => Ok(store.newest_sealed().await?.as_deref().and_then(key_id)),
            Newest::Files(files) => {
                for file in files {
                    let sealed = newest_sealed(file).await.map_err(|fault| StoreError {
                        what: "cannot find out which key sealed the data".to_owned(),
                        cause: fault.into(),
                    })?;
                    if let Some(id) = sealed.as_deref().and_then(key_id) {
                        return Ok(Some(id));
                    }
                }
                Ok(None)
            }
        }
    }
}

/// The sealed rows of all databases that exist, read without changing anything.
pub async fn sealed_rows(config: &Config) -> Result<Vec<Box<dyn SealedRows>>, StoreError> {
    let conversations = match &config.store.url {
        StoreUrl::Postgres(url) => {
            return Ok(vec![Box::new(PostgresStore::sealed_rows(url).await?)]);
        }
        StoreUrl::Sqlite(path) => path,
    };
    let mut found: Vec<Box<dyn SealedRows>> = Vec::new();
    if conversations.exists() {
        found.push(Box::new(SqliteConversations::sealed_rows(conversations).await?));
    }
    let memory = config.data_dir.join(MEMORY_FILE);
    if memory.exists() {
        found.push(Box::new(SqliteStore::sealed_rows(&memory).await?));
    }
    Ok(found)
}

/// The location of the data and the key that sealed it, read without changing anything. `None` if the
/// data cannot be read.
pub async fn read_last_key(config: &Config) -> Option<(String, Option<KeyId>)> {
    match &config.store.url {
        StoreUrl::Sqlite(conversations) => {
            let memory = config.data_dir.join(MEMORY_FILE);
            let mut last = read_fact(&memory, keyring::FACT).await.ok()?;
            let mut last = last.take().as_deref().and_then(keyring::read_id);
            for file in [&memory, conversations] {
                if last.is_none() {
                    last = newest_sealed(file).await.ok()?.as_deref().and_then(key_id);
                }
            }
            Some((format!("`{}`", config.data_dir.display()), last))
        }
        StoreUrl::Postgres(url) => {
            let (name, last) = PostgresStore::read_fact(url, keyring::FACT).await.ok()?;
            Some((format!("the {name}"), last.as_deref().and_then(keyring::read_id)))
        }
    }
}
