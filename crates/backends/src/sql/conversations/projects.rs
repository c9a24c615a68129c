//! Projects and their branches.

use serde::de::DeserializeOwned;
use throughline_conversations::store::{
    Branch, Changed, Node, NodeFacts, Page, Project, ProjectStore, Reference,
};
use throughline_gateway::thinking::store::StoreFuture;

use super::rows::{self, NODE, PROJECT, REFERENCE, to_json};
use super::{SqlConversations, read_error, write_error};
use crate::sql::many_rows::{self, MAX_ROWS};
use crate::sql::{Database, Statements, WriteTransaction, values};

impl<D: Database> SqlConversations<D> {
    async fn purge(&self, id: &str) -> Result<bool, sqlx::Error> {
        let mut transaction = self.database.begin().await?;
        for statement in [
            // Commits hold the project before its branches, so this comes first here too.
            "UPDATE project SET owner = owner WHERE id = $1",
            "DELETE FROM run WHERE reference IN (SELECT id FROM reference WHERE project = $1)",
            // Runs of rooms are on no branch.
            "DELETE FROM run WHERE owner = (SELECT owner FROM project WHERE id = $1)
             AND scope = 'project:' || $1",
            "DELETE FROM node WHERE project = $1",
            "DELETE FROM reference WHERE project = $1",
            "DELETE FROM run_cost WHERE project = $1",
        ] {
            transaction.execute(statement, values![id]).await?;
        }
        let removed = transaction.execute("DELETE FROM project WHERE id = $1", values![id]).await?;
        transaction.commit().await?;
        Ok(removed > 0)
    }

    async fn compare_and_change_project(
        &self,
        from: Project,
        to: Project,
    ) -> Result<Changed, sqlx::Error> {
        let found = self.stored_facts("project", &from.id).await?;
        // The content is compared by the statement.
        let Some(facts) = found.filter(|facts| is_same(facts, &from.facts)) else {
            return Ok(Changed::Stale);
        };
        let statement = "UPDATE project SET deleted = $1, facts = $2, sealed = $3
             WHERE id = $4 AND facts = $5 AND sealed = $6";
        let values =
            values![to.facts.deleted, to_json(&to.facts), to.sealed, from.id, facts, from.sealed];
        changed(self.database.run(statement, values).await)
    }

    async fn compare_and_change_branch(
        &self,
        id: &str,
        from: Branch,
        to: Branch,
    ) -> Result<Changed, sqlx::Error> {
        let found = self.stored_facts("reference", id).await?;
        let Some(facts) = found.filter(|facts| is_same(facts, &from.facts)) else {
            return Ok(Changed::Stale);
        };
        let statement = "UPDATE reference SET name = $1, facts = $2
             WHERE id = $3 AND project = $4 AND name = $5 AND facts = $6";
        let values = values![to.name, to_json(&to.facts), id, from.project, from.name, facts];
        changed(self.database.run(statement, values).await)
    }

    async fn compare_and_change_node(
        &self,
        id: &str,
        from: NodeFacts,
        to: NodeFacts,
    ) -> Result<Changed, sqlx::Error> {
        let found = self.stored_facts("node", id).await?;
        let Some(facts) = found.filter(|facts| is_same(facts, &from)) else {
            return Ok(Changed::Stale);
        };
        let statement =
            "UPDATE node SET facts = $1 WHERE id = $2 AND facts = $3 AND project IS NOT NULL";
        changed(self.database.run(statement, values![to_json(&to), id, facts]).await)
    }

    /// The facts of a row as they are stored. An earlier version may have written fewer members, so
    /// they are compared as values, and the statement that follows compares the text.
    async fn stored_facts(&self, table: &str, id: &str) -> Result<Option<String>, sqlx::Error> {
        let statement = format!("SELECT facts FROM {table} WHERE id = $1 AND facts IS NOT NULL");
        let found = self.database.read(&statement, values![id]).await?;
        rows::first(found, |mut row| row.text())
    }
}

/// Whether stored facts are those that a caller knows.
fn is_same<T: DeserializeOwned + PartialEq>(stored: &str, known: &T) -> bool {
    serde_json::from_str::<T>(stored).is_ok_and(|stored| stored == *known)
}

/// The result of a statement that changes one row if it is as the caller knew it.
fn changed(rows: Result<u64, sqlx::Error>) -> Result<Changed, sqlx::Error> {
    match rows {
        Ok(0) => Ok(Changed::Stale),
        Ok(_) => Ok(Changed::Yes),
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(Changed::NameTaken),
        Err(error) => Err(error),
    }
}

impl<D: Database> ProjectStore for SqlConversations<D> {
    fn put_project(&self, project: Project) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let statement = "INSERT INTO project (id, owner, created, deleted, facts, sealed)
                 VALUES ($1, $2, $3, $4, $5, $6)
                 ON CONFLICT (id) DO UPDATE SET deleted = $4, facts = $5, sealed = $6";
            let values = values![
                project.id,
                project.owner,
                project.created,
                project.facts.deleted,
                to_json(&project.facts),
                project.sealed,
            ];
            self.database.run(statement, values).await.map(drop).map_err(write_error)
        })
    }

    fn project(&self, id: &str) -> StoreFuture<'_, Option<Project>> {
        let values = values![id];
        Box::pin(async move {
            let statement = format!("SELECT {PROJECT} FROM project WHERE id = $1");
            let found = self.database.read(&statement, values).await.map_err(read_error)?;
            rows::first(found, rows::project).map_err(read_error)
        })
    }

    fn projects(&self, owner: &str, deleted: bool, page: Page) -> StoreFuture<'_, Vec<Project>> {
        let mut values = values![owner, page.limit];
        Box::pin(async move {
            let after = match page.after {
                Some(after) => {
                    values.push(after.into());
                    "AND id < $3"
                }
                None => "",
            };
            let (not, shared) = match deleted {
                true => ("NOT", ""),
                false => ("", "OR id IN (SELECT project FROM project_member WHERE account = $1)"),
            };
            let statement = format!(
                "SELECT {PROJECT} FROM project
                 WHERE (owner = $1 {shared}) AND deleted IS {not} NULL {after}
                 ORDER BY id DESC LIMIT $2"
            );
            let found = self.database.read(&statement, values).await.map_err(read_error)?;
            rows::all(found, rows::project).map_err(read_error)
        })
    }

    fn key_checks(&self, ids: &[String]) -> StoreFuture<'_, Vec<(String, Option<String>)>> {
        let ids = ids.to_vec();
        Box::pin(async move {
            let mut checks = Vec::with_capacity(ids.len());
            for some in ids.chunks(MAX_ROWS) {
                let (some, values) = many_rows::one_of(some);
                let statement = format!("SELECT {PROJECT} FROM project WHERE id IN {some}");
                let found = self.database.read(&statement, values).await.map_err(read_error)?;
                let found = rows::all(found, rows::project).map_err(read_error)?;
                checks.extend(found.into_iter().map(|of| (of.id, of.facts.key_check)));
            }
            Ok(checks)
        })
    }

    fn remove_project(&self, id: &str) -> StoreFuture<'_, bool> {
        let id = id.to_owned();
        Box::pin(async move { self.purge(&id).await.map_err(write_error) })
    }

    fn branches(&self, project: &str) -> StoreFuture<'_, Vec<Reference>> {
        let values = values![project];
        Box::pin(async move {
            let statement = format!(
                "SELECT {REFERENCE} FROM reference WHERE project = $1 ORDER BY created, id"
            );
            let found = self.database.read(&statement, values).await.map_err(read_error)?;
            rows::all(found, rows::reference).map_err(read_error)
        })
    }

    fn change_project(&self, from: Project, to: Project) -> StoreFuture<'_, Changed> {
        Box::pin(
            async move { self.compare_and_change_project(from, to).await.map_err(write_error) },
        )
    }

    fn change_branch(&self, id: &str, from: Branch, to: Branch) -> StoreFuture<'_, Changed> {
        let id = id.to_owned();
        Box::pin(
            async move { self.compare_and_change_branch(&id, from, to).await.map_err(write_error) },
        )
    }

    fn change_node(&self, id: &str, from: NodeFacts, to: NodeFacts) -> StoreFuture<'_, Changed> {
        let id = id.to_owned();
        Box::pin(
            async move { self.compare_and_change_node(&id, from, to).await.map_err(write_error) },
        )
    }

    fn node_facts(&self, ids: &[String]) -> StoreFuture<'_, Vec<(String, NodeFacts)>> {
        let ids = ids.to_vec();
        Box::pin(async move {
            let mut facts = Vec::with_capacity(ids.len());
            for some in ids.chunks(MAX_ROWS) {
                let (some, values) = many_rows::one_of(some);
                let statement = format!(
                    "SELECT id, facts FROM node WHERE project IS NOT NULL AND id IN {some}"
                );
                let found = self.database.read(&statement, values).await.map_err(read_error)?;
                facts.extend(rows::all(found, rows::node_facts).map_err(read_error)?);
            }
            Ok(facts)
        })
    }

    fn project_nodes(&self, project: &str, page: Page) -> StoreFuture<'_, Vec<Node>> {
        let values = values![project, page.after.unwrap_or_default(), page.limit];
        Box::pin(async move {
            let statement = format!(
                "SELECT {NODE} FROM node WHERE project = $1 AND id > $2 ORDER BY id LIMIT $3"
            );
            let found = self.database.read(&statement, values).await.map_err(read_error)?;
            rows::all(found, rows::node).map_err(read_error)
        })
    }

    fn count_nodes(&self, project: &str) -> StoreFuture<'_, u64> {
        let values = values![project];
        Box::pin(async move {
            let statement = "SELECT count(*) FROM node WHERE project = $1";
            let found = self.database.read(statement, values).await.map_err(read_error)?;
            let count = rows::first(found, |mut row| row.number()).map_err(read_error)?;
            Ok(count.unwrap_or_default())
        })
    }
}
