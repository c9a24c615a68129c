//! The open blocks of a reply that is being written.

/// What a writer keeps of each open block, in the order of their starts.
#[derive(Debug)]
pub(crate) struct OpenBlocks<T>(Vec<(u32, T)>);

impl<T> Default for OpenBlocks<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> OpenBlocks<T> {
    /// Adds a block under the index of its events.
    pub(crate) fn push(&mut self, index: u32, block: T) {
        self.0.push((index, block));
    }

    /// The block that deltas with this index belong to: the last one that started.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.0.iter_mut().rfind(|(open, _)| *open == index).map(|(_, block)| block)
    }

    /// Removes a block that has ended.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let position = self.0.iter().rposition(|(open, _)| *open == index)?;
        Some(self.0.remove(position).1)
    }

    /// Removes all blocks.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.0).into_iter().map(|(_, block)| block)
    }
}
