//! Paths: a node and those before it.
//!
//! The nodes of a project form *lines*. The first child that a node got continues the line of its
//! parent, and every other child begins a line, which has its id. So a path is a few ranges of lines,
//! and each of them is one range of an index. Nodes outside projects have no line; their paths are read
//! from parent to parent, and so are those with very many forks.

use std::cmp::Reverse;

use throughline_conversations::store::{Detail, Node, Page};

use super::SqlConversations;
use super::rows::{self, NODE, PATH_NODE};
use crate::sql::{Database, Row, values};

/// The node `$1` and those before it, at most `$2`.
pub(super) const ABOVE: &str = "WITH RECURSIVE above (id, parent, depth) AS (
        SELECT id, parent, 0 FROM node WHERE id = $1 UNION ALL
        SELECT node.id, node.parent, above.depth + 1 FROM above
        JOIN node ON node.id = above.parent WHERE above.depth + 1 < $2
     )";

/// The node at depth `$2` on the path to the node `$1`.
const AT_DEPTH: &str = "WITH RECURSIVE above (id, parent, jump, depth) AS (
        SELECT id, parent, jump, depth FROM node WHERE id = $1 UNION ALL
        SELECT node.id, node.parent, node.jump, node.depth FROM above
        LEFT JOIN node AS far ON far.id = above.jump
        JOIN node ON node.id = CASE WHEN far.depth >= $2 THEN far.id ELSE above.parent END
        WHERE above.depth > $2
     ) SELECT id FROM above WHERE depth = $2";

/// The ranges of lines that have the last `$2` nodes of the path to the node `$1`, newest first, at
/// most `$3`. With the owner and the project of the node.
const RANGES: &str = "WITH RECURSIVE range (line, parent, first, last, lowest) AS (
        SELECT node.line, start.parent, start.depth, node.depth, node.depth - $2 + 1
        FROM node JOIN node AS start ON start.id = node.line WHERE node.id = $1 UNION ALL
        SELECT before.line, start.parent, start.depth, before.depth, range.lowest FROM range
        JOIN node AS before ON before.id = range.parent
        JOIN node AS start ON start.id = before.line WHERE range.first > range.lowest
     ) SELECT line, CASE WHEN first < lowest THEN lowest ELSE first END, last,
        (SELECT owner FROM node WHERE id = $1), (SELECT project FROM node WHERE id = $1)
     FROM range LIMIT $3";

/// More ranges than this are not read one by one.
const MAX_RANGES: usize = 500;
/// Nodes that a range must have on average. Shorter ones cost more than the way from parent to parent.
const MIN_RANGE_NODES: u64 = 16;

/// Nodes that one statement reads. Longer ranges are read in parts, two at a time, because the connections of
/// a database work in parallel.
const PART_NODES: u64 = 1_000;

/// A part of a path: the nodes of a line from one depth to another.
struct Range {
    line: String,
    first: u64,
    last: u64,
}

impl Range {
    /// The same nodes in parts, oldest first.
    fn parts(&self) -> impl Iterator<Item = Self> {
        let starts = (self.first..=self.last).step_by(PART_NODES as usize);
        starts.map(|first| Self {
            line: self.line.clone(),
            first,
            last: self.last.min(first + PART_NODES - 1),
        })
    }
}

/// A path of a project as ranges, newest first.
struct Ranges {
    owner: String,
    project: String,
    ranges: Vec<Range>,
}

impl Ranges {
    fn read(found: Vec<Row>) -> Result<Option<Self>, sqlx::Error> {
        let (mut owner, mut project) = (None, None);
        let mut ranges = Vec::with_capacity(found.len());
        for mut row in found {
            ranges.push(Range { line: row.text()?, first: row.number()?, last: row.number()? });
            (owner, project) = (row.optional_text()?, row.optional_text()?);
        }
        let nodes: u64 = ranges.iter().map(|range| range.last + 1 - range.first).sum();
        let are_few =
            ranges.len() < MAX_RANGES && ranges.len() as u64 <= 1 + nodes / MIN_RANGE_NODES;
        Ok(match (owner, project) {
            (Some(owner), Some(project)) if are_few => Some(Self { owner, project, ranges }),
            _ => None,
        })
    }
}

impl<D: Database> SqlConversations<D> {
    /// A node and its ancestors, root first, at most `limit` of them.
    pub(super) async fn read_path(
        &self,
        id: &str,
        limit: usize,
        detail: Detail,
    ) -> Result<Vec<Node>, sqlx::Error> {
        let found = self.database.read(RANGES, values![id, limit, MAX_RANGES]).await?;
        let Some(Ranges { owner, project, ranges }) = Ranges::read(found)? else {
            return self.read_ancestors(id, limit, detail).await;
        };
        let parts: Vec<Range> = ranges.iter().rev().flat_map(Range::parts).collect();
        let mut path = Vec::new();
        for two in parts.chunks(2) {
            match two {
                [first, second] => {
                    let (first, second) = tokio::try_join!(
                        self.read_range(first, detail),
                        self.read_range(second, detail)
                    )?;
                    path.extend(first);
                    path.extend(second);
                }
                one => {
                    for range in one {
                        path.extend(self.read_range(range, detail).await?);
                    }
                }
            }
        }
        for node in &mut path {
            node.owner.clone_from(&owner);
            if let Some(inside) = &mut node.in_project {
                inside.project.clone_from(&project);
            }
        }
        Ok(from_last_hole(path))
    }

    /// The nodes of a range, oldest first, without their owner and their project.
    async fn read_range(&self, range: &Range, detail: Detail) -> Result<Vec<Node>, sqlx::Error> {
        let statement = format!(
            "SELECT {PATH_NODE}{} FROM node
             WHERE line = $1 AND depth >= $2 AND depth <= $3 ORDER BY depth",
            rows::more_of_path_node(detail),
        );
        let values = values![&*range.line, range.first, range.last];
        let found = self.database.read(&statement, values).await?;
        found.into_iter().map(|row| rows::path_node(row, detail)).collect()
    }

    /// The same from parent to parent. The database does not sort the nodes, because it would move all
    /// contents.
    async fn read_ancestors(
        &self,
        id: &str,
        limit: usize,
        detail: Detail,
    ) -> Result<Vec<Node>, sqlx::Error> {
        let statement = format!(
            "{ABOVE} SELECT above.depth, {NODE} FROM above JOIN node ON node.id = above.id"
        );
        let found = self.database.read(&statement, values![id, limit]).await?;
        let numbered = |mut row: Row| Ok((row.number()?, rows::node(row)?));
        let mut path: Vec<(u64, Node)> = rows::all(found, numbered)?;
        path.sort_unstable_by_key(|(depth, _)| Reverse(*depth));
        Ok(path.into_iter().map(|(_, node)| node.with_detail(detail)).collect())
    }

    /// A page of the path to a node of a project, root first. `None` if `after` is not on the path.
    pub(super) async fn read_path_page(
        &self,
        id: &str,
        page: Page,
        detail: Detail,
    ) -> Result<Option<Vec<Node>>, sqlx::Error> {
        let Some(depth) = self.depth(id).await? else {
            return Ok(page.after.is_none().then(Vec::new));
        };
        let Some(after) = page.after else {
            let nodes = self.read_down_to((id, depth), 0, page.limit, detail).await?;
            return Ok(Some(nodes));
        };
        match self.depth(&after).await? {
            Some(at) if at <= depth => {
                let limit = page.limit + 1;
                let mut nodes = self.read_down_to((id, depth), at, limit, detail).await?;
                let is_on_path = nodes.first().is_some_and(|first| first.id == after);
                Ok(is_on_path.then(|| nodes.split_off(1)))
            }
            _ => Ok(None),
        }
    }

    async fn depth(&self, id: &str) -> Result<Option<u64>, sqlx::Error> {
        let statement = "SELECT depth FROM node WHERE id = $1 AND depth IS NOT NULL";
        let found = self.database.read(statement, values![id]).await?;
        rows::first(found, |mut row| row.number())
    }

    /// The path to a node of this depth, from the depth `first` on, at most `limit` nodes.
    async fn read_down_to(
        &self,
        (id, depth): (&str, u64),
        first: u64,
        limit: usize,
        detail: Detail,
    ) -> Result<Vec<Node>, sqlx::Error> {
        let count = (depth + 1 - first).min(limit as u64);
        if count == 0 {
            return Ok(Vec::new());
        }
        let last = self.database.read(AT_DEPTH, values![id, first + count - 1]).await?;
        match rows::first(last, |mut row| row.text())? {
            Some(last) => {
                let limit = usize::try_from(count).unwrap_or(limit);
                self.read_path(&last, limit, detail).await
            }
            None => Ok(Vec::new()),
        }
    }
}

/// The nodes after the last one whose parent is missing.
fn from_last_hole(mut path: Vec<Node>) -> Vec<Node> {
    let follows = |pair: &[Node]| pair[1].parent.as_ref() == Some(&pair[0].id);
    match path.windows(2).rposition(|pair| !follows(pair)) {
        Some(hole) => path.split_off(hole + 1),
        None => path,
    }
}
