//! A conversation store in RAM.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use throughline_gateway::thinking::store::StoreFuture;

use crate::store::{Move, Node, Piece, Reference, Store};

/// A conversation store in RAM.
#[derive(Debug, Default)]
pub struct InMemory {
    contents: Mutex<Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    nodes: BTreeMap<String, Node>,
    references: BTreeMap<String, Reference>,
    logs: BTreeMap<String, Vec<Piece>>,
}

impl Contents {
    fn path(&self, id: &str, most: usize) -> Vec<Node> {
        let mut path = Vec::new();
        let mut next = self.nodes.get(id);
        while let Some(node) = next.filter(|_| path.len() < most) {
            path.push(node.clone());
            next = node.parent.as_ref().and_then(|id| self.nodes.get(id));
        }
        path.reverse();
        path
    }

    fn put(&mut self, node: Node, moves: Option<Move>) -> bool {
        if let Some(moves) = moves {
            let Some(reference) = self.references.get_mut(&moves.reference) else {
                return false;
            };
            if reference.head != moves.from {
                return false;
            }
            reference.head = Some(node.id.clone());
            reference.expires = later(reference.expires, node.expires);
        }
        // A node that follows itself would make the walk endless.
        let mut next = node.parent.clone();
        while let Some(id) = next.filter(|id| *id != node.id) {
            let Some(above) = self.nodes.get_mut(&id) else {
                break;
            };
            above.expires = later(above.expires, node.expires);
            next = above.parent.clone();
        }
        self.nodes.insert(node.id.clone(), node);
        true
    }

    fn remove(&mut self, id: &str) -> bool {
        self.logs.remove(id);
        self.nodes.remove(id).is_some()
    }

    fn size(&self, id: &str, node: &Node) -> u64 {
        let log = self.logs.get(id).into_iter().flatten();
        let logged: usize = log.map(|piece| piece.sealed.len()).sum();
        (node.sealed.len() + logged) as u64
    }

    fn trim(&mut self, now: u64, bytes: u64) -> u64 {
        let mut closed: Vec<(u64, String, bool, u64)> = self
            .nodes
            .iter()
            .filter(|(_, node)| !node.open)
            .map(|(id, node)| {
                let expired = node.expires.is_some_and(|at| at <= now);
                (node.created, id.clone(), expired, self.size(id, node))
            })
            .collect();
        closed.sort();
        let all = self.nodes.iter();
        let mut total: u64 = all.map(|(id, node)| self.size(id, node)).sum();
        let before = self.references.len();
        let lives = |expires: Option<u64>| expires.is_none_or(|at| at > now);
        self.references.retain(|_, reference| lives(reference.expires));
        let mut gone = (before - self.references.len()) as u64;
        for expired_only in [true, false] {
            closed.retain(|(_, id, expired, size)| {
                let goes = if expired_only { *expired } else { total > bytes };
                if goes {
                    self.remove(id);
                    total -= size;
                    gone += 1;
                }
                !goes
            });
        }
        gone
    }
}

/// The later of two expiry times. `None` never expires.
fn later(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one?.max(other?))
}

fn ready<T: Send + 'static>(value: T) -> StoreFuture<'static, T> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Store for InMemory {
    fn put(&self, node: Node, moves: Option<Move>) -> StoreFuture<'_, bool> {
        ready(self.contents.lock().put(node, moves))
    }

    fn node(&self, id: &str) -> StoreFuture<'_, Option<Node>> {
        ready(self.contents.lock().nodes.get(id).cloned())
    }

    fn named(&self, owner: &str, name: &str) -> StoreFuture<'_, Option<Node>> {
        let contents = self.contents.lock();
        let named = contents.nodes.values().filter(|node| node.names.iter().any(|own| own == name));
        let newest = named.max_by_key(|node| (node.owner == owner, node.created));
        ready(newest.cloned())
    }

    fn path(&self, id: &str, most: usize) -> StoreFuture<'_, Vec<Node>> {
        ready(self.contents.lock().path(id, most))
    }

    fn remove(&self, id: &str) -> StoreFuture<'_, bool> {
        ready(self.contents.lock().remove(id))
    }

    fn open_nodes(&self) -> StoreFuture<'_, Vec<Node>> {
        let contents = self.contents.lock();
        let open = contents.nodes.values().filter(|node| node.open);
        ready(open.cloned().collect())
    }

    fn put_reference(&self, reference: Reference) -> StoreFuture<'_, ()> {
        let references = &mut self.contents.lock().references;
        match references.get_mut(&reference.id) {
            Some(known) => known.sealed = reference.sealed,
            None => {
                references.insert(reference.id.clone(), reference);
            }
        }
        ready(())
    }

    fn reference(&self, id: &str) -> StoreFuture<'_, Option<Reference>> {
        ready(self.contents.lock().references.get(id).cloned())
    }

    fn remove_reference(&self, id: &str) -> StoreFuture<'_, bool> {
        ready(self.contents.lock().references.remove(id).is_some())
    }

    fn log(&self, node: &str, piece: Piece) -> StoreFuture<'_, ()> {
        let logs = &mut self.contents.lock().logs;
        logs.entry(node.to_owned()).or_default().push(piece);
        ready(())
    }

    fn logged(&self, node: &str, after: Option<u64>) -> StoreFuture<'_, Vec<Piece>> {
        let contents = self.contents.lock();
        let log = contents.logs.get(node).into_iter().flatten();
        let behind = log.filter(|piece| after.is_none_or(|after| piece.last > after));
        ready(behind.cloned().collect())
    }

    fn trim(&self, now: u64, bytes: u64) -> StoreFuture<'_, u64> {
        ready(self.contents.lock().trim(now, bytes))
    }

    fn check_write(&self) -> StoreFuture<'_, ()> {
        ready(())
    }
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn in_memory_store_passes_the_suite() {
        crate::suite::check_store(&super::InMemory::default()).await;
    }
}
