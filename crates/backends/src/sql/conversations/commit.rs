//! Writes changes together, or none of them.

use throughline_conversations::store::{
    Commit, Move, Node, Outcome, ProjectFacts, ProjectNode, Reference, Run, RunCost, RunEnd,
    SealedUnder,
};

use super::SqlConversations;
use super::rooms::add_entries;
use super::rows::{self, to_json};
use crate::sql::{Database, Statements, WriteTransaction, values};

/// How often a commit is tried again after another process was faster.
const MAX_CONFLICTS: usize = 8;

impl<D: Database> SqlConversations<D> {
    /// Writes a commit. Another process of a shared database may take a name or a branch between
    /// our look and our write; then the database refuses, and the next look sees it.
    pub(super) async fn write_commit(&self, commit: &Commit) -> Result<Outcome, sqlx::Error> {
        let mut conflicts = 0;
        loop {
            match self.try_commit(commit).await {
                Err(error) if is_conflict(&error) && conflicts < MAX_CONFLICTS => conflicts += 1,
                result => return result,
            }
        }
    }

    async fn try_commit(&self, commit: &Commit) -> Result<Outcome, sqlx::Error> {
        let mut transaction = self.database.begin().await?;
        let mut outcome = match &commit.sealed_under {
            Some(under) if !has_key::<D>(&mut transaction, under).await? => Outcome::KeyChanged,
            _ => apply(&mut transaction, commit).await?,
        };
        if outcome == Outcome::Written {
            transaction.commit().await?;
            return Ok(outcome);
        }
        // An equal request may have been written while this one waited for the reference.
        if let Some(run) = &commit.start
            && let Some(run) = repeated_run(&mut transaction, run).await?
        {
            outcome = Outcome::Repeated { run };
        }
        transaction.roll_back().await?;
        Ok(outcome)
    }
}

/// Whether another process has written the same key, or changed the same row, at the same time.
fn is_conflict(error: &sqlx::Error) -> bool {
    let database = error.as_database_error();
    database.is_some_and(|error| {
        let code = error.code();
        // Two processes that wait for each other are a conflict too.
        let is_retried = code.is_some_and(|code| code == "40001" || code == "40P01");
        error.is_unique_violation() || is_retried
    })
}

/// Whether a project has this key. The key then stays until the transaction ends.
async fn has_key<D: Database>(
    to: &mut impl Statements,
    under: &SealedUnder,
) -> Result<bool, sqlx::Error> {
    let statement = format!("SELECT facts FROM project WHERE id = $1 {}", D::HOLD);
    let found = to.fetch(&statement, values![&*under.project]).await?;
    let facts = rows::first(found, |mut row| row.text())?;
    let facts = facts.and_then(|facts| serde_json::from_str::<ProjectFacts>(&facts).ok());
    Ok(facts.and_then(|facts| facts.key_check).as_ref() == Some(&under.key_check))
}

async fn apply(to: &mut impl Statements, commit: &Commit) -> Result<Outcome, sqlx::Error> {
    // A repeated request finds its run, whatever has changed since.
    if let Some(run) = &commit.start
        && let Some(run) = repeated_run(to, run).await?
    {
        return Ok(Outcome::Repeated { run });
    }
    if let Some(reference) = &commit.reference
        && !add_reference(to, reference).await?
    {
        return Ok(Outcome::NameTaken);
    }
    if let Some(end) = &commit.end
        && !end_run(to, end).await?
    {
        return Ok(Outcome::Fenced);
    }
    if let Some(moves) = &commit.moves {
        let expires = commit.nodes.last().and_then(|node| node.expires);
        let outcome = move_reference(to, moves, expires).await?;
        if outcome != Outcome::Written {
            return Ok(outcome);
        }
    }
    if let Some(run) = &commit.start {
        let moved = commit.moves.as_ref().map(|moves| &moves.reference);
        let outcome = start_run(to, run, moved).await?;
        if outcome != Outcome::Written {
            return Ok(outcome);
        }
    }
    for node in &commit.nodes {
        put_node(to, node).await?;
    }
    if let Some(cost) = &commit.cost {
        add_cost(to, cost).await?;
    }
    add_entries(to, &commit.entries).await
}

/// Adds a reference. Returns false if there is one with this id, or its project has a branch of this name.
async fn add_reference(
    to: &mut impl Statements,
    reference: &Reference,
) -> Result<bool, sqlx::Error> {
    let branch = reference.branch.as_ref();
    let known = "SELECT 1 FROM reference WHERE id = $1";
    if !to.fetch(known, values![&*reference.id]).await?.is_empty() {
        return Ok(false);
    }
    if let Some(branch) = branch {
        let taken = "SELECT 1 FROM reference WHERE project = $1 AND name = $2";
        if !to.fetch(taken, values![&*branch.project, &*branch.name]).await?.is_empty() {
            return Ok(false);
        }
    }
    to.execute(
        "INSERT INTO reference (id, owner, head, created, expires, sealed, project, name, facts)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        values![
            &*reference.id,
            &*reference.owner,
            reference.head.clone(),
            reference.created,
            reference.expires,
            reference.sealed.clone(),
            branch.map(|branch| branch.project.clone()),
            branch.map(|branch| branch.name.clone()),
            branch.map(|branch| to_json(&branch.facts)),
        ],
    )
    .await?;
    Ok(true)
}

async fn add_cost(to: &mut impl Statements, of: &RunCost) -> Result<(), sqlx::Error> {
    to.execute(
        "INSERT INTO run_cost (run, project, room, channel, picodollars, unpriced_tokens)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
        values![
            &*of.run,
            &*of.project,
            of.room.clone(),
            of.channel.clone(),
            of.cost.map(|cost| cost.picodollars),
            of.cost.map_or(0, |cost| cost.unpriced_tokens),
        ],
    )
    .await?;
    Ok(())
}

async fn end_run(to: &mut impl Statements, end: &RunEnd) -> Result<bool, sqlx::Error> {
    let ended = to
        .execute(
            "UPDATE run SET status = $1, expires = $2, sealed = $3
             WHERE id = $4 AND epoch = $5 AND status = 'running'",
            values![end.status.as_str(), end.expires, end.sealed.clone(), &*end.run, end.epoch],
        )
        .await?;
    Ok(ended > 0)
}

/// Moves a reference. The run that ends in the same commit has ended by now.
async fn move_reference(
    to: &mut impl Statements,
    moves: &Move,
    expires: Option<u64>,
) -> Result<Outcome, sqlx::Error> {
    // This also locks the reference, so no run can start on it unseen. One without an expiry keeps
    // none.
    let moved = to
        .execute(
            "UPDATE reference SET head = $1, expires = CASE
                WHEN expires IS NULL OR $2 IS NULL THEN NULL
                WHEN expires > $2 THEN expires ELSE $2 END
             WHERE id = $3 AND head IS NOT DISTINCT FROM $4",
            values![moves.to.clone(), expires, &*moves.reference, moves.from.clone()],
        )
        .await?;
    if let Some(run) = active_run(to, &moves.reference).await? {
        return Ok(Outcome::Busy { run });
    }
    Ok(if moved > 0 { Outcome::Written } else { Outcome::Stale })
}

async fn active_run(
    to: &mut impl Statements,
    reference: &str,
) -> Result<Option<String>, sqlx::Error> {
    let active = "SELECT id FROM run WHERE reference = $1 AND status = 'running'";
    let rows = to.fetch(active, values![reference]).await?;
    rows.into_iter().next().map(|mut row| row.text()).transpose()
}

/// The run that has the name of this one.
async fn repeated_run(to: &mut impl Statements, run: &Run) -> Result<Option<String>, sqlx::Error> {
    let Some(name) = &run.name else {
        return Ok(None);
    };
    let known = "SELECT id FROM run WHERE owner = $1 AND scope = $2 AND name = $3";
    let rows = to.fetch(known, values![&*run.owner, &*run.scope, &**name]).await?;
    rows.into_iter().next().map(|mut row| row.text()).transpose()
}

/// Starts a run. `moved` is a reference that is known to have no run in progress.
async fn start_run(
    to: &mut impl Statements,
    run: &Run,
    moved: Option<&String>,
) -> Result<Outcome, sqlx::Error> {
    if let Some(reference) = &run.reference
        && Some(reference) != moved
        && let Some(run) = active_run(to, reference).await?
    {
        return Ok(Outcome::Busy { run });
    }
    to.execute(
        "INSERT INTO run (id, owner, scope, name, reference, instance, epoch, status, created,
         expires, sealed) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        values![
            &*run.id,
            &*run.owner,
            &*run.scope,
            run.name.clone(),
            run.reference.clone(),
            &*run.instance,
            run.epoch,
            run.status.as_str(),
            run.created,
            run.expires,
            run.sealed.clone(),
        ],
    )
    .await?;
    Ok(Outcome::Written)
}

/// Inserts or replaces a node. The jump of a node of a project goes to its parent, or as far as the
/// last two jumps of its parent together if those are equally long. So jumps of all lengths follow
/// each other, and the way to any node before it has few steps. It continues the line of its parent
/// unless another child does.
const PUT_NODE: &str =
    "INSERT INTO node (id, parent, owner, created, expires, open, size, sealed, project, facts,
        has_thinking, thinking_token_count, encrypted_thinking_content,
        encrypted_thinking_signature, depth, jump, line)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
        CASE WHEN $9 IS NOT NULL THEN
            coalesce((SELECT depth + 1 FROM node WHERE id = $2), 0)
        END,
        CASE WHEN $9 IS NOT NULL THEN (
            SELECT CASE WHEN parent.depth - far.depth = far.depth - farther.depth
                THEN far.jump ELSE parent.id END
            FROM node AS parent
            LEFT JOIN node AS far ON far.id = parent.jump
            LEFT JOIN node AS farther ON farther.id = far.jump
            WHERE parent.id = $2
        ) END,
        CASE WHEN $9 IS NOT NULL THEN coalesce((
            SELECT parent.line FROM node AS parent WHERE parent.id = $2 AND NOT EXISTS (
                SELECT 1 FROM node AS child WHERE child.line = parent.line
                AND child.depth = parent.depth + 1 AND child.id <> $1
            )
        ), $1) END)
     ON CONFLICT (id) DO UPDATE SET parent = $2, owner = $3, created = $4, expires = $5,
        open = $6, size = node.size - length(node.sealed) + $7, sealed = $8, project = $9,
        facts = $10, has_thinking = $11, thinking_token_count = $12,
        encrypted_thinking_content = $13, encrypted_thinking_signature = $14,
        depth = excluded.depth, jump = excluded.jump,
        line = CASE WHEN node.line IS NOT NULL AND node.parent IS NOT DISTINCT FROM $2
            THEN node.line ELSE excluded.line END";

/// Inserts or replaces a node, with its names and its provider's reply.
async fn put_node(to: &mut impl Statements, node: &Node) -> Result<(), sqlx::Error> {
    let outside = ProjectNode::default();
    let inside = node.in_project.as_ref();
    let known = inside.unwrap_or(&outside);
    to.execute(
        PUT_NODE,
        values![
            &*node.id,
            node.parent.clone(),
            &*node.owner,
            node.created,
            node.expires,
            node.open,
            node.sealed.len(),
            node.sealed.clone(),
            inside.map(|inside| inside.project.clone()),
            inside.map(|inside| to_json(&inside.facts)),
            known.has_thinking,
            known.thinking_tokens,
            known.sealed_thinking.clone(),
            known.sealed_signatures.clone(),
        ],
    )
    .await?;
    if let Some(raw) = &known.sealed_raw {
        to.execute(
            "INSERT INTO raw_response (node, raw_response) VALUES ($1, $2)
             ON CONFLICT (node) DO UPDATE SET raw_response = $2",
            values![&*node.id, raw.clone()],
        )
        .await?;
    }
    if inside.is_some() {
        return Ok(());
    }
    to.execute("DELETE FROM node_name WHERE node = $1", values![&*node.id]).await?;
    for name in &node.names {
        let insert = "INSERT INTO node_name (node, name) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        to.execute(insert, values![&*node.id, &**name]).await?;
    }
    // The nodes above it must live at least as long.
    to.execute(
        "WITH RECURSIVE above (id) AS (
            SELECT id FROM node WHERE id = $1 UNION
            SELECT node.parent FROM node JOIN above ON node.id = above.id
            WHERE node.parent IS NOT NULL
         ) UPDATE node SET expires = CASE
            WHEN $2 IS NULL THEN NULL WHEN expires > $2 THEN expires ELSE $2 END
         WHERE id IN (SELECT id FROM above) AND id <> $1 AND expires IS NOT NULL",
        values![&*node.id, node.expires],
    )
    .await?;
    Ok(())
}
