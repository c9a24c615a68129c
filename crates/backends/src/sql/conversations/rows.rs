//! Reads stored values from rows. The columns of each kind are listed beside its reader.

use serde::Serialize;
use serde::de::DeserializeOwned;
use throughline_canonical::Cost;
use throughline_conversations::store::{
    Branch, Channel, CostSum, Credential, Delivery, Detail, Member, Node, NodeFacts, Piece,
    Project, ProjectNode, Reference, Room, RoomEntry, Run, RunStatus, User, UserSession,
};

use crate::sql::Row;

/// The columns of a node, for [`node`].
pub(super) const NODE: &str = "node.id, node.parent, node.owner, node.created, node.expires, \
    node.open, node.sealed, node.project, node.facts, node.has_thinking, \
    node.thinking_token_count, node.encrypted_thinking_content, \
    node.encrypted_thinking_signature, CASE WHEN node.project IS NULL THEN \
    (SELECT string_agg(name, '\n') FROM node_name WHERE node_name.node = node.id) END";

/// The columns of a node of a path in a project, for [`path_node`]. All its nodes have the same owner and
/// project.
pub(super) const PATH_NODE: &str = "id, parent, created, facts, has_thinking, thinking_token_count";

/// The columns that [`path_node`] needs besides.
pub(super) fn more_of_path_node(detail: Detail) -> &'static str {
    match detail {
        Detail::Whole => ", sealed, encrypted_thinking_content, encrypted_thinking_signature",
        Detail::Content => ", sealed",
        Detail::Facts => "",
    }
}

/// The columns of a reference, for [`reference`].
pub(super) const REFERENCE: &str =
    "id, owner, head, created, expires, sealed, project, name, facts";

/// The columns of a project, for [`project`].
pub(super) const PROJECT: &str = "id, owner, created, facts, sealed";

/// The columns of a run, for [`run`].
pub(super) const RUN: &str =
    "id, owner, scope, name, reference, instance, epoch, status, created, expires, sealed";

/// The columns of a piece of a log, for [`piece`].
pub(super) const PIECE: &str = "first, last, continues, sealed";

/// The columns of a user, for [`user`].
pub(super) const USER: &str = "id, name, unique_name, created, kdf, auth_record, \
    wrapped_master_key, recovery_auth_record, recovery_wrapped_master_key, public_key, \
    wrapped_private_key";

/// The columns of a session, for [`session`].
pub(super) const SESSION: &str = "token, account, created, expires";

/// The columns of a member, for [`member`].
pub(super) const MEMBER: &str = "project, account, created, wrapped_key";

/// The columns of a channel, for [`channel`].
pub(super) const CHANNEL: &str = "owner, id, created, sealed";

/// The columns of a room, for [`room`].
pub(super) const ROOM: &str = "id, owner, project, branch, created, version, sealed";

/// The columns of an entry of the log of a room, for [`room_entry`].
pub(super) const ROOM_ENTRY: &str = "room, number, name, sealed";

/// The columns of a call of a webhook, for [`delivery`].
pub(super) const DELIVERY: &str = "id, room, attempts, due, sealed";

pub(super) fn node(mut row: Row) -> Result<Node, sqlx::Error> {
    let mut node = Node {
        id: row.text()?,
        parent: row.optional_text()?,
        owner: row.text()?,
        created: row.number()?,
        expires: row.optional_number()?,
        open: row.flag()?,
        sealed: row.bytes()?,
        ..Node::default()
    };
    let (project, facts) = (row.optional_text()?, row.optional_text()?);
    let inside = ProjectNode {
        has_thinking: row.flag()?,
        thinking_tokens: row.optional_number()?,
        sealed_thinking: row.optional_bytes()?,
        sealed_signatures: row.optional_bytes()?,
        ..ProjectNode::default()
    };
    let names = row.optional_text()?;
    node.names = names.iter().flat_map(|names| names.lines()).map(str::to_owned).collect();
    if let Some(project) = project {
        let facts = from_json(&facts.unwrap_or_default())?;
        node.in_project = Some(ProjectNode { project, facts, ..inside });
    }
    Ok(node)
}

/// A node of a path in a project, without its owner and its project.
pub(super) fn path_node(mut row: Row, detail: Detail) -> Result<Node, sqlx::Error> {
    let (id, parent, created) = (row.text()?, row.optional_text()?, row.number()?);
    let mut inside = ProjectNode {
        facts: from_json(&row.text()?)?,
        has_thinking: row.flag()?,
        thinking_tokens: row.optional_number()?,
        ..ProjectNode::default()
    };
    let sealed = if detail == Detail::Facts { Vec::new() } else { row.bytes()? };
    if detail == Detail::Whole {
        inside.sealed_thinking = row.optional_bytes()?;
        inside.sealed_signatures = row.optional_bytes()?;
    }
    Ok(Node { id, parent, created, sealed, in_project: Some(inside), ..Node::default() })
}

pub(super) fn node_facts(mut row: Row) -> Result<(String, NodeFacts), sqlx::Error> {
    Ok((row.text()?, from_json(&row.text()?)?))
}

pub(super) fn reference(mut row: Row) -> Result<Reference, sqlx::Error> {
    let mut reference = Reference {
        id: row.text()?,
        owner: row.text()?,
        head: row.optional_text()?,
        created: row.number()?,
        expires: row.optional_number()?,
        sealed: row.bytes()?,
        branch: None,
    };
    let (project, name, facts) = (row.optional_text()?, row.optional_text()?, row.optional_text()?);
    if let (Some(project), Some(name), Some(facts)) = (project, name, facts) {
        reference.branch = Some(Branch { project, name, facts: from_json(&facts)? });
    }
    Ok(reference)
}

pub(super) fn project(mut row: Row) -> Result<Project, sqlx::Error> {
    Ok(Project {
        id: row.text()?,
        owner: row.text()?,
        created: row.number()?,
        facts: from_json(&row.text()?)?,
        sealed: row.bytes()?,
    })
}

pub(super) fn run(mut row: Row) -> Result<Run, sqlx::Error> {
    Ok(Run {
        id: row.text()?,
        owner: row.text()?,
        scope: row.text()?,
        name: row.optional_text()?,
        reference: row.optional_text()?,
        instance: row.text()?,
        epoch: row.number()?,
        status: {
            let status = row.text()?;
            let unknown = || sqlx::Error::Decode(format!("unknown status `{status}`").into());
            RunStatus::read(&status).ok_or_else(unknown)?
        },
        created: row.number()?,
        expires: row.optional_number()?,
        sealed: row.bytes()?,
    })
}

pub(super) fn piece(mut row: Row) -> Result<Piece, sqlx::Error> {
    Ok(Piece {
        first: row.number()?,
        last: row.number()?,
        continues: row.flag()?,
        sealed: row.bytes()?,
    })
}

pub(super) fn cost_sum(mut row: Row) -> Result<CostSum, sqlx::Error> {
    Ok(CostSum {
        channel: row.optional_text()?,
        answers: row.number()?,
        unpriced_answers: row.number()?,
        cost: Cost { picodollars: row.number()?, unpriced_tokens: row.number()? },
    })
}

pub(super) fn user(mut row: Row) -> Result<User, sqlx::Error> {
    Ok(User {
        id: row.text()?,
        name: row.text()?,
        unique_name: row.text()?,
        created: row.number()?,
        kdf: row.text()?,
        passphrase: credential(&mut row)?,
        recovery: credential(&mut row)?,
        public_key: row.bytes()?,
        wrapped_private_key: row.bytes()?,
    })
}

fn credential(row: &mut Row) -> Result<Credential, sqlx::Error> {
    Ok(Credential { auth_record: row.bytes()?, wrapped_master_key: row.bytes()? })
}

pub(super) fn session(mut row: Row) -> Result<UserSession, sqlx::Error> {
    let token = row.bytes()?.try_into();
    Ok(UserSession {
        token: token.map_err(|_| sqlx::Error::Decode("a token has 32 bytes".into()))?,
        user: row.text()?,
        created: row.number()?,
        expires: row.number()?,
    })
}

pub(super) fn member(mut row: Row) -> Result<Member, sqlx::Error> {
    Ok(Member {
        project: row.text()?,
        user: row.text()?,
        created: row.number()?,
        wrapped_key: row.optional_bytes()?,
    })
}

pub(super) fn channel(mut row: Row) -> Result<Channel, sqlx::Error> {
    let (owner, id) = (row.text()?, row.text()?);
    Ok(Channel { id, owner, created: row.number()?, sealed: row.bytes()? })
}

pub(super) fn room(mut row: Row) -> Result<Room, sqlx::Error> {
    Ok(Room {
        id: row.text()?,
        owner: row.text()?,
        project: row.text()?,
        branch: row.text()?,
        created: row.number()?,
        version: row.number()?,
        sealed: row.bytes()?,
    })
}

pub(super) fn room_entry(mut row: Row) -> Result<RoomEntry, sqlx::Error> {
    Ok(RoomEntry {
        room: row.text()?,
        number: row.number()?,
        name: row.optional_text()?,
        sealed: row.bytes()?,
    })
}

pub(super) fn delivery(mut row: Row) -> Result<Delivery, sqlx::Error> {
    Ok(Delivery {
        id: row.text()?,
        room: row.text()?,
        attempts: row.number()?,
        due: row.optional_number()?,
        sealed: row.bytes()?,
    })
}

/// Reads all rows.
pub(super) fn all<T>(
    rows: Vec<Row>,
    read: fn(Row) -> Result<T, sqlx::Error>,
) -> Result<Vec<T>, sqlx::Error> {
    rows.into_iter().map(read).collect()
}

/// Reads the first row.
pub(super) fn first<T>(
    rows: Vec<Row>,
    read: fn(Row) -> Result<T, sqlx::Error>,
) -> Result<Option<T>, sqlx::Error> {
    rows.into_iter().next().map(read).transpose()
}

pub(super) fn to_json(facts: &impl Serialize) -> String {
    serde_json::to_string(facts).unwrap_or_default()
}

fn from_json<T: DeserializeOwned>(facts: &str) -> Result<T, sqlx::Error> {
    serde_json::from_str(facts).map_err(|cause| sqlx::Error::Decode(cause.into()))
}
