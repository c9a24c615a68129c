//! Reads a project: the history of a branch, single nodes, the graph, the providers' replies. Also
//! searches contents.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::available_parallelism;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

use super::content::{NodeContent, NodeView};
use super::context::PastNode;
use super::problem::Problem;
use super::unreadable::{Unreadable, or_unreadable};
use super::{Caller, Projects};
use crate::chat_seal::{ChatSeal, Field, SealedFields};
use crate::store::{Changed, Detail, Node, NodeRole, NodeStatus, Page, Project};

/// Nodes of one project that a search looks at.
const MAX_SEARCHED_NODES: usize = 20_000;
/// Nodes that are read at a time.
const NODE_PAGE: usize = 500;
/// Shorter paths are opened faster than threads start.
const MIN_PARALLEL_NODES: usize = 500;
/// Threads that open the nodes of one path.
const MAX_OPENING_THREADS: usize = 4;
/// The found nodes of one project that a search returns.
const MAX_MATCHES: usize = 5;
/// Characters around a found text.
const SNIPPET: usize = 60;

/// The order of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    #[default]
    Ascending,
    /// Newest first.
    Descending,
}

/// A page of the history of a branch.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct HistoryPage {
    /// The nodes.
    pub nodes: Vec<NodeView>,
    /// The value of `after` for the next page.
    pub next: Option<String>,
}

/// The shape of a project.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Graph {
    /// The nodes, in the order in which they were made.
    pub nodes: Vec<GraphNode>,
    /// The branches.
    pub branches: Vec<super::BranchView>,
    /// The value of `after` for the next page.
    pub next: Option<String>,
}

/// A node without its content.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GraphNode {
    /// The id.
    pub id: String,
    /// The node before it.
    pub parent: Option<String>,
    /// The second parent, if it merges a branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_from: Option<String>,
    /// The author.
    pub role: NodeRole,
    /// Whether it is complete.
    pub status: NodeStatus,
    /// The model that made it.
    pub model_used: Option<String>,
    /// The branch on which it was created.
    pub created_on_branch: String,
    /// Whether it has thinking.
    #[serde(rename = "has_thinking")]
    pub has_thinking: bool,
    /// Whether the user marked it.
    pub starred: bool,
    /// When it was created, in milliseconds since 1970.
    pub created_at: u64,
}

/// A place where a searched text was found.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Match {
    /// The node.
    pub node_id: String,
    /// The text around it.
    pub snippet: String,
}

/// What a search has found in a project.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) matches: Vec<Match>,
    /// Nodes that it could not look at.
    pub(super) unreadable: Vec<Unreadable>,
}

/// The names of branches, by id.
pub(super) type BranchNames = HashMap<String, String>;

impl Projects {
    /// A page of the history of a branch.
    pub async fn history(
        self: &Arc<Self>,
        caller: &Caller,
        project: &str,
        branch: &str,
        order: Order,
        page: Page,
    ) -> Result<HistoryPage, Problem> {
        let project = self.own_project(caller, project).await?;
        let seal = self.seal_of(caller, &project)?;
        let mut branch = self.branch(&project, branch).await?;
        if let Some(seal) = &seal {
            self.recover(seal, &project, &mut branch).await?;
        }
        let names = self.branch_names(&project).await?;
        let Some(head) = branch.head else {
            return Ok(HistoryPage { nodes: Vec::new(), next: None });
        };
        let store = &self.sealed_store.store;
        let detail = match project.facts.key_check {
            Some(_) => Detail::Whole,
            None => Detail::Content,
        };
        let Page { after, limit } = page;
        let (nodes, next) = match order {
            Order::Descending => {
                let start = match &after {
                    None => Some(head),
                    Some(after) => self.own_node(&project, after).await?.parent,
                };
                let mut path = match start {
                    Some(start) => store.path(&start, limit, detail).await?,
                    None => Vec::new(),
                };
                path.reverse();
                let next = path.last().filter(|last| last.parent.is_some());
                let next = next.map(|last| last.id.clone());
                (path, next)
            }
            Order::Ascending => {
                let unknown = after.clone().unwrap_or_default();
                let nodes = store.path_page(&head, Page { after, limit }, detail).await?;
                let nodes = nodes.ok_or_else(|| {
                    Problem::invalid("after", format!("`{unknown}` is not on this branch"))
                })?;
                let next = nodes.last().filter(|last| last.id != head);
                let next = next.map(|last| last.id.clone());
                (nodes, next)
            }
        };
        let nodes: Result<Vec<NodeView>, Problem> =
            nodes.iter().map(|node| item(seal.as_deref(), node, &names)).collect();
        Ok(HistoryPage { nodes: nodes?, next })
    }

    /// One node.
    pub async fn node(
        &self,
        caller: &Caller,
        project: &str,
        id: &str,
    ) -> Result<NodeView, Problem> {
        let project = self.own_project(caller, project).await?;
        let seal = self.seal_of(caller, &project)?;
        let node = self.own_node(&project, id).await?;
        let mut view = view(seal.as_deref(), &node, &self.branch_names(&project).await?)?;
        if project.facts.key_check.is_some() {
            let raw = self.sealed_store.store.raw(&node.id).await?;
            view.encrypted_raw_response = raw.map(|sealed| BASE64_URL_SAFE_NO_PAD.encode(sealed));
        }
        Ok(view)
    }

    /// Marks a node, or removes the mark.
    pub async fn star(
        &self,
        caller: &Caller,
        project: &str,
        id: &str,
        starred: bool,
    ) -> Result<NodeView, Problem> {
        let project = self.own_project(caller, project).await?;
        let seal = self.seal_of(caller, &project)?;
        let mut node = self.own_node(&project, id).await?;
        while let Some(inside) = &mut node.in_project {
            let from = inside.facts.clone();
            inside.facts.starred = starred;
            let to = inside.facts.clone();
            match self.sealed_store.store.change_node(id, from, to).await? {
                Changed::Yes => break,
                // Another request has changed it.
                _ => node = self.own_node(&project, id).await?,
            }
        }
        view(seal.as_deref(), &node, &self.branch_names(&project).await?)
    }

    /// The provider's reply of a node as it was captured, in its envelope.
    pub async fn raw(
        &self,
        caller: &Caller,
        project: &str,
        id: &str,
    ) -> Result<Box<RawValue>, Problem> {
        let project = self.own_project(caller, project).await?;
        let seal = self.unlock(caller, &project)?;
        let node = self.own_node(&project, id).await?;
        let sealed = self.sealed_store.store.raw(&node.id).await?;
        let sealed = sealed.ok_or_else(|| {
            Problem::not_found("captured reply of node", id)
                .hint("only answers have one, and only while `store.raw` is on")
        })?;
        let text = open_raw(&seal, id, &sealed)?;
        RawValue::from_string(text)
            .map_err(|_| Problem::from(throughline_canonical::Fault::invalid("not JSON")))
    }

    /// The shape of a project, without contents.
    pub async fn graph(
        &self,
        caller: &Caller,
        project: &str,
        page: Page,
    ) -> Result<Graph, Problem> {
        let project = self.own_project(caller, project).await?;
        let names = self.branch_names(&project).await?;
        let limit = page.limit;
        let nodes = self.sealed_store.store.project_nodes(&project.id, page).await?;
        let next = nodes.last().filter(|_| nodes.len() == limit).map(|last| last.id.clone());
        let nodes = nodes.into_iter().map(|node| graph_node(node, &names)).collect();
        Ok(Graph { nodes, branches: self.branch_views(&project.id, false).await?, next })
    }

    /// How many nodes a project has.
    pub async fn count_nodes(&self, caller: &Caller, project: &str) -> Result<u64, Problem> {
        let project = self.own_project(caller, project).await?;
        Ok(self.sealed_store.store.count_nodes(&project.id).await?)
    }

    /// A node of a project.
    pub(super) async fn own_node(&self, project: &Project, id: &str) -> Result<Node, Problem> {
        let node = self.sealed_store.store.node(id).await?;
        let own = node.filter(|node| {
            node.in_project.as_ref().is_some_and(|inside| inside.project == project.id)
        });
        own.ok_or_else(|| Problem::not_found("node", id))
    }

    pub(super) async fn branch_names(&self, project: &Project) -> Result<BranchNames, Problem> {
        let branches = self.sealed_store.store.branches(&project.id).await?;
        let named = branches
            .into_iter()
            .filter_map(|reference| Some((reference.id, reference.branch?.name)));
        Ok(named.collect())
    }

    /// The last nodes of the path to a node, at most `most`, with contents; and the node before them. Many
    /// nodes are opened by several threads, none of which serves requests.
    pub(super) async fn past_page(
        &self,
        seal: &ChatSeal,
        head: &str,
        most: usize,
    ) -> Result<(Vec<PastNode>, Option<String>), Problem> {
        let mut nodes = self.sealed_store.store.path(head, most, Detail::Content).await?;
        let before = nodes.first().and_then(|first| first.parent.clone());
        if nodes.len() < MIN_PARALLEL_NODES {
            return Ok((open_nodes(seal, nodes)?, before));
        }
        let threads = available_parallelism().map_or(1, usize::from).min(MAX_OPENING_THREADS);
        let share = nodes.len().div_ceil(threads);
        let mut parts = Vec::with_capacity(threads);
        while !nodes.is_empty() {
            let rest = nodes.split_off(share.min(nodes.len()));
            let (seal, part) = (seal.clone(), std::mem::replace(&mut nodes, rest));
            parts.push(spawn_blocking(move || open_nodes(&seal, part)));
        }
        let mut past = Vec::new();
        for part in parts {
            let broken = |_| {
                let message = "the branch cannot be read; see the server's log";
                Problem::new(throughline_canonical::FaultKind::Internal, "unreadable", message)
            };
            past.extend(part.await.map_err(broken)??);
        }
        Ok((past, before))
    }

    /// Searches the texts of a project.
    pub(super) async fn search_content(
        &self,
        seal: &ChatSeal,
        project: &str,
        searched: &str,
    ) -> Result<Found, Problem> {
        let (mut found, mut looked_at, mut after) = (Found::default(), 0, None);
        while looked_at < MAX_SEARCHED_NODES {
            let page = Page { after: after.take(), limit: NODE_PAGE };
            let nodes = self.sealed_store.store.project_nodes(project, page).await?;
            let Some(last) = nodes.last() else {
                break;
            };
            after = Some(last.id.clone());
            looked_at += nodes.len();
            for node in nodes {
                let (content, problem) = or_unreadable(content(seal, &node))?;
                found.unreadable.extend(problem);
                if let Some(snippet) = snippet(&content.text(), searched) {
                    found.matches.push(Match { node_id: node.id, snippet });
                    if found.matches.len() == MAX_MATCHES {
                        return Ok(found);
                    }
                }
            }
        }
        Ok(found)
    }
}

fn open_nodes(seal: &ChatSeal, nodes: Vec<Node>) -> Result<Vec<PastNode>, Problem> {
    let open = |node: Node| {
        let content = content(seal, &node)?;
        let facts = node.in_project.map(|inside| inside.facts).unwrap_or_default();
        Ok(PastNode { id: node.id, facts, content })
    };
    nodes.into_iter().map(open).collect()
}

/// The opened content of a node.
pub(crate) fn content(seal: &ChatSeal, node: &Node) -> Result<NodeContent, Problem> {
    let fields = SealedFields::read(&node.sealed);
    let sealed = fields.as_ref().and_then(|fields| fields.get(Field::Node));
    Ok(seal.open_json(Field::Node, &node.id, sealed.unwrap_or(&node.sealed))?)
}

/// A node as the API shows it, with its content if there is a seal.
pub(super) fn view(
    seal: Option<&ChatSeal>,
    node: &Node,
    names: &BranchNames,
) -> Result<NodeView, Problem> {
    let content = seal.map(|seal| content(seal, node)).transpose()?;
    Ok(NodeView::new(node, content, maker(node, names)))
}

/// A node of a list. If its content does not open, it says so and the others are still shown.
fn item(seal: Option<&ChatSeal>, node: &Node, names: &BranchNames) -> Result<NodeView, Problem> {
    let content = seal.map(|seal| content(seal, node).map(Some));
    let (content, problem) = or_unreadable(content.unwrap_or(Ok(None)))?;
    Ok(NodeView { problem, ..NodeView::new(node, content, maker(node, names)) })
}

/// The name of the branch that a node was created on.
fn maker<'a>(node: &'a Node, names: &'a BranchNames) -> &'a str {
    let branch = node.in_project.as_ref().map_or("", |inside| &inside.facts.branch);
    names.get(branch).map_or(branch, String::as_str)
}

fn graph_node(node: Node, names: &BranchNames) -> GraphNode {
    let inside = node.in_project.unwrap_or_default();
    let facts = inside.facts;
    GraphNode {
        id: node.id,
        parent: node.parent,
        merged_from: facts.merged,
        role: facts.role,
        status: facts.status,
        model_used: facts.model,
        created_on_branch: names.get(&facts.branch).cloned().unwrap_or(facts.branch),
        has_thinking: inside.has_thinking,
        starred: facts.starred,
        created_at: node.created,
    }
}

/// The text around the first occurrence of a lower-case text.
fn snippet(text: &str, searched: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let at = lower.find(searched)?;
    // Lower case may have other lengths, so positions are counted in characters.
    let before = lower[..at].chars().count();
    let start = before.saturating_sub(SNIPPET);
    let length = before - start + searched.chars().count() + SNIPPET;
    Some(text.chars().skip(start).take(length).collect())
}

/// An envelope around a provider's reply.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawEnvelope<'a> {
    pub(super) provider: &'a str,
    /// The dialect of the reply, which says how to read the payload.
    pub(super) dialect: &'a str,
    pub(super) captured_at: u64,
    pub(super) version: u32,
    /// How many rounds a tool loop had: the payload is then a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rounds: Option<usize>,
    pub(super) payload: &'a RawValue,
}

/// The version of [`RawEnvelope`].
pub(super) const RAW_VERSION: u32 = 1;

/// Compresses and seals a provider's reply.
pub(super) fn seal_raw(seal: &ChatSeal, node: &str, envelope: &RawEnvelope<'_>) -> Option<Vec<u8>> {
    let text = serde_json::to_vec(envelope).ok()?;
    let packed = zstd::bulk::compress(&text, RAW_LEVEL).ok()?;
    Some(seal.seal(Field::RawResponse, node, &packed))
}

fn open_raw(seal: &ChatSeal, node: &str, sealed: &[u8]) -> Result<String, Problem> {
    let packed = seal.open(Field::RawResponse, node, sealed)?;
    let broken = |_| {
        let message = "the captured reply cannot be read; see the server's log";
        Problem::new(throughline_canonical::FaultKind::Internal, "unreadable", message)
    };
    let text = zstd::stream::decode_all(&*packed).map_err(broken)?;
    String::from_utf8(text).map_err(|_| broken(std::io::Error::other("not UTF-8")))
}

/// How hard a provider's reply is compressed. Higher levels gain little on event streams.
const RAW_LEVEL: i32 = 3;
