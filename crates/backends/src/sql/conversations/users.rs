//! Users and their sessions.

use throughline_conversations::store::{CredentialChange, TokenHash, User, UserSession, UserStore};
use throughline_gateway::thinking::store::StoreFuture;

use super::rows::{self, SESSION, USER};
use super::{SqlConversations, read_error, write_error};
use crate::sql::{Database, Statements, Value, WriteTransaction, values};

/// The row of `write_check` that is written together with the first user.
const FIRST_USER: u64 = 2;

impl<D: Database> SqlConversations<D> {
    async fn find_user(&self, column: &str, value: &str) -> Result<Option<User>, sqlx::Error> {
        let statement = format!("SELECT {USER} FROM account WHERE {column} = $1");
        rows::first(self.database.read(&statement, values![value]).await?, rows::user)
    }

    async fn insert_first(&self, user: User) -> Result<bool, sqlx::Error> {
        let mut transaction = self.database.begin().await?;
        // Who writes this row is alone until the transaction ends.
        let statement = "INSERT INTO write_check (id, filler) VALUES ($1, $2)
             ON CONFLICT (id) DO UPDATE SET filler = excluded.filler";
        transaction.execute(statement, values![FIRST_USER, Vec::new()]).await?;
        let known = transaction.fetch("SELECT id FROM account LIMIT 1", values![]).await?;
        if !known.is_empty() {
            transaction.roll_back().await?;
            return Ok(false);
        }
        let (statement, values) = insert(user);
        transaction.execute(&statement, values).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn write_credentials(&self, change: CredentialChange) -> Result<bool, sqlx::Error> {
        let mut transaction = self.database.begin().await?;
        let statement = "UPDATE account SET kdf = $1, auth_record = $2, wrapped_master_key = $3,
                 recovery_auth_record = $4, recovery_wrapped_master_key = $5
             WHERE id = $6 AND auth_record = $7 AND wrapped_master_key = $8";
        let values = values![
            change.kdf,
            change.passphrase.auth_record,
            change.passphrase.wrapped_master_key,
            change.recovery.auth_record,
            change.recovery.wrapped_master_key,
            change.user.as_str(),
            change.from.auth_record,
            change.from.wrapped_master_key,
        ];
        if transaction.execute(statement, values).await? == 0 {
            transaction.roll_back().await?;
            return Ok(false);
        }
        // No token has an empty hash.
        let kept = change.kept_session.map_or_else(Vec::new, |token| token.to_vec());
        let statement = "DELETE FROM session WHERE account = $1 AND token <> $2";
        transaction.execute(statement, values![change.user, kept]).await?;
        transaction.commit().await?;
        Ok(true)
    }
}

/// The statement that adds a user, and its values. It adds nothing if the name is taken.
fn insert(user: User) -> (String, Vec<Value>) {
    let statement = format!(
        "INSERT INTO account ({USER})
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
         ON CONFLICT (unique_name) DO NOTHING"
    );
    let values = values![
        user.id,
        user.name,
        user.unique_name,
        user.created,
        user.kdf,
        user.passphrase.auth_record,
        user.passphrase.wrapped_master_key,
        user.recovery.auth_record,
        user.recovery.wrapped_master_key,
        user.public_key,
        user.wrapped_private_key,
    ];
    (statement, values)
}

impl<D: Database> UserStore for SqlConversations<D> {
    fn add_user(&self, user: User) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let (statement, values) = insert(user);
            let added = self.database.run(&statement, values).await.map_err(write_error)?;
            Ok(added > 0)
        })
    }

    fn add_first_user(&self, user: User) -> StoreFuture<'_, bool> {
        Box::pin(async move { self.insert_first(user).await.map_err(write_error) })
    }

    fn user(&self, id: &str) -> StoreFuture<'_, Option<User>> {
        let id = id.to_owned();
        Box::pin(async move { self.find_user("id", &id).await.map_err(read_error) })
    }

    fn user_named(&self, unique_name: &str) -> StoreFuture<'_, Option<User>> {
        let name = unique_name.to_owned();
        Box::pin(async move { self.find_user("unique_name", &name).await.map_err(read_error) })
    }

    fn has_users(&self) -> StoreFuture<'_, bool> {
        Box::pin(async {
            let statement = "SELECT id FROM account LIMIT 1";
            let found = self.database.read(statement, values![]).await.map_err(read_error)?;
            Ok(!found.is_empty())
        })
    }

    fn change_credentials(&self, change: CredentialChange) -> StoreFuture<'_, bool> {
        Box::pin(async move { self.write_credentials(change).await.map_err(write_error) })
    }

    fn add_session(&self, session: UserSession) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let statement = format!("INSERT INTO session ({SESSION}) VALUES ($1, $2, $3, $4)");
            let values =
                values![session.token.to_vec(), session.user, session.created, session.expires];
            self.database.run(&statement, values).await.map(drop).map_err(write_error)
        })
    }

    fn session(&self, token: TokenHash) -> StoreFuture<'_, Option<UserSession>> {
        Box::pin(async move {
            let statement = format!("SELECT {SESSION} FROM session WHERE token = $1");
            let values = values![token.to_vec()];
            let found = self.database.read(&statement, values).await.map_err(read_error)?;
            rows::first(found, rows::session).map_err(read_error)
        })
    }

    fn remove_session(&self, token: TokenHash) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let statement = "DELETE FROM session WHERE token = $1";
            let values = values![token.to_vec()];
            let removed = self.database.run(statement, values).await.map_err(write_error)?;
            Ok(removed > 0)
        })
    }
}
