//! Readers for optional members of a request.

use throughline_canonical::Fault;

use crate::json::Node;

/// Reads an optional string.
pub(crate) fn string(node: &Node<'_>, name: &str) -> Result<Option<String>, Fault> {
    let member = node.get(name);
    member.map(|member| member.text().map(str::to_owned)).transpose()
}

/// Reads an optional boolean.
pub(crate) fn flag(node: &Node<'_>, name: &str) -> Result<Option<bool>, Fault> {
    node.get(name).map(|member| member.flag()).transpose()
}

/// Reads an optional non-negative integer.
pub(crate) fn count(node: &Node<'_>, name: &str) -> Result<Option<u64>, Fault> {
    node.get(name).map(|member| member.count()).transpose()
}
