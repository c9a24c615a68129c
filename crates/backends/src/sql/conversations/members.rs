//! Members of projects.

use throughline_conversations::store::{KeyChange, Member, MemberStore, Project};
use throughline_gateway::thinking::store::StoreFuture;

use super::rows::{self, MEMBER, PROJECT, to_json};
use super::{SqlConversations, read_error, write_error};
use crate::sql::{Database, Statements, WriteTransaction, values};

impl<D: Database> SqlConversations<D> {
    async fn share(&self, member: Member, key: Option<String>) -> Result<bool, sqlx::Error> {
        let mut transaction = self.database.begin().await?;
        let project = held_project(&mut transaction, &member.project).await?;
        if project.is_none_or(|project| project.facts.key_check != key) {
            transaction.roll_back().await?;
            return Ok(false);
        }
        write_member(&mut transaction, member).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn write_key(&self, change: KeyChange) -> Result<bool, sqlx::Error> {
        let mut transaction = self.database.begin().await?;
        if set_next_key(&mut transaction, change).await? {
            transaction.commit().await?;
            return Ok(true);
        }
        transaction.roll_back().await?;
        Ok(false)
    }
}

/// A project that no other process can change until the transaction ends.
async fn held_project(to: &mut impl Statements, id: &str) -> Result<Option<Project>, sqlx::Error> {
    // A write that changes nothing holds the row; a look alone would not.
    to.execute("UPDATE project SET owner = owner WHERE id = $1", values![id]).await?;
    let statement = format!("SELECT {PROJECT} FROM project WHERE id = $1");
    rows::first(to.fetch(&statement, values![id]).await?, rows::project)
}

async fn set_next_key(to: &mut impl Statements, change: KeyChange) -> Result<bool, sqlx::Error> {
    let KeyChange { project, previous, key_check, wrapped_keys } = change;
    let held = held_project(to, &project).await?;
    let is_present = |held: &Project| held.facts.key_check.as_ref() == Some(&previous.key_check);
    let Some(Project { owner, created, mut facts, .. }) = held.filter(is_present) else {
        return Ok(false);
    };
    facts.key_check = Some(key_check);
    facts.previous_keys.insert(0, previous);
    let statement = "UPDATE project SET facts = $1 WHERE id = $2";
    to.execute(statement, values![to_json(&facts), project.as_str()]).await?;
    let statement = "UPDATE project_member SET wrapped_key = NULL WHERE project = $1";
    to.execute(statement, values![project.as_str()]).await?;
    for (user, wrapped) in wrapped_keys {
        let member = Member { project: project.clone(), user, created, wrapped_key: Some(wrapped) };
        let is_known = match member.user == owner {
            true => write_member(to, member).await? > 0,
            false => replace_key(to, member).await? > 0,
        };
        if !is_known {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn write_member(to: &mut impl Statements, member: Member) -> Result<u64, sqlx::Error> {
    let statement = format!(
        "INSERT INTO project_member ({MEMBER}) VALUES ($1, $2, $3, $4)
         ON CONFLICT (project, account) DO UPDATE SET wrapped_key = $4"
    );
    let values = values![member.project, member.user, member.created, member.wrapped_key];
    to.execute(&statement, values).await
}

async fn replace_key(to: &mut impl Statements, member: Member) -> Result<u64, sqlx::Error> {
    let statement =
        "UPDATE project_member SET wrapped_key = $3 WHERE project = $1 AND account = $2";
    to.execute(statement, values![member.project, member.user, member.wrapped_key]).await
}

impl<D: Database> MemberStore for SqlConversations<D> {
    fn put_member(&self, member: Member, key_check: Option<String>) -> StoreFuture<'_, bool> {
        Box::pin(async move { self.share(member, key_check).await.map_err(write_error) })
    }

    fn member(&self, project: &str, user: &str) -> StoreFuture<'_, Option<Member>> {
        let values = values![project, user];
        Box::pin(async move {
            let statement =
                format!("SELECT {MEMBER} FROM project_member WHERE project = $1 AND account = $2");
            let found = self.database.read(&statement, values).await.map_err(read_error)?;
            rows::first(found, rows::member).map_err(read_error)
        })
    }

    fn members(&self, project: &str) -> StoreFuture<'_, Vec<Member>> {
        let values = values![project];
        Box::pin(async move {
            let statement = format!(
                "SELECT {MEMBER} FROM project_member WHERE project = $1 ORDER BY created, account"
            );
            let found = self.database.read(&statement, values).await.map_err(read_error)?;
            rows::all(found, rows::member).map_err(read_error)
        })
    }

    fn remove_member(&self, project: &str, user: &str) -> StoreFuture<'_, bool> {
        let values = values![project, user];
        Box::pin(async move {
            let statement = "DELETE FROM project_member WHERE project = $1 AND account = $2";
            let removed = self.database.run(statement, values).await.map_err(write_error)?;
            Ok(removed > 0)
        })
    }

    fn change_key(&self, change: KeyChange) -> StoreFuture<'_, bool> {
        Box::pin(async move { self.write_key(change).await.map_err(write_error) })
    }
}
