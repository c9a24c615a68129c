//! A store that records the result of each write.

use std::sync::Arc;

use throughline_gateway::thinking::health::StoreHealth;
use throughline_gateway::thinking::store::StoreFuture;

use crate::store::{Move, Node, Piece, Reference, Store};

/// A store, and what is known about the writes to it.
#[derive(Debug)]
pub struct WatchedStore {
    store: Arc<dyn Store>,
    health: Arc<StoreHealth>,
}

impl WatchedStore {
    /// Watches a store.
    pub fn new(store: Arc<dyn Store>, health: Arc<StoreHealth>) -> Self {
        Self { store, health }
    }

    /// Records a write. A write that had nothing to do, as `wrote` says, proves nothing.
    fn watch<'a, T: Send + 'a>(
        &'a self,
        write: StoreFuture<'a, T>,
        wrote: fn(&T) -> bool,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let result = write.await;
            if result.as_ref().map_or(true, wrote) {
                self.health.record(&result);
            }
            result
        })
    }
}

impl Store for WatchedStore {
    fn put(&self, node: Node, moves: Option<Move>) -> StoreFuture<'_, bool> {
        self.watch(self.store.put(node, moves), |written| *written)
    }

    fn node(&self, id: &str) -> StoreFuture<'_, Option<Node>> {
        self.store.node(id)
    }

    fn named(&self, owner: &str, name: &str) -> StoreFuture<'_, Option<Node>> {
        self.store.named(owner, name)
    }

    fn path(&self, id: &str, most: usize) -> StoreFuture<'_, Vec<Node>> {
        self.store.path(id, most)
    }

    fn remove(&self, id: &str) -> StoreFuture<'_, bool> {
        self.watch(self.store.remove(id), |removed| *removed)
    }

    fn open_nodes(&self) -> StoreFuture<'_, Vec<Node>> {
        self.store.open_nodes()
    }

    fn put_reference(&self, reference: Reference) -> StoreFuture<'_, ()> {
        self.watch(self.store.put_reference(reference), |()| true)
    }

    fn reference(&self, id: &str) -> StoreFuture<'_, Option<Reference>> {
        self.store.reference(id)
    }

    fn remove_reference(&self, id: &str) -> StoreFuture<'_, bool> {
        self.watch(self.store.remove_reference(id), |removed| *removed)
    }

    fn log(&self, node: &str, piece: Piece) -> StoreFuture<'_, ()> {
        self.watch(self.store.log(node, piece), |()| true)
    }

    fn logged(&self, node: &str, after: Option<u64>) -> StoreFuture<'_, Vec<Piece>> {
        self.store.logged(node, after)
    }

    fn trim(&self, now: u64, bytes: u64) -> StoreFuture<'_, u64> {
        self.watch(self.store.trim(now, bytes), |removed| *removed > 0)
    }

    /// The result is recorded by [`StoreHealth::check`].
    fn check_write(&self) -> StoreFuture<'_, ()> {
        self.store.check_write()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn watched_store_passes_the_suite() {
        let store = Arc::new(crate::in_memory::InMemory::default());
        let health = Arc::new(StoreHealth::new("test"));
        crate::suite::check_store(&WatchedStore::new(store, health)).await;
    }
}
