//! Things by number, as many as there are, that readers of any time share.

use crate::sync::Arc;

/// Chunks are shared by all views; only the list of chunks is copied when it grows.
#[derive(Debug)]
pub(crate) struct Chunks<T, const EACH: usize>(Arc<Vec<std::sync::Arc<[T]>>>);

impl<T: Default, const EACH: usize> Chunks<T, EACH> {
    /// A thing; none if it is of a later time than these.
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        let id = id as usize;
        Some(&self.0.get(id / EACH)?[id % EACH])
    }

    pub(crate) fn capacity(&self) -> usize {
        self.0.len() * EACH
    }

    pub(crate) fn grow(&mut self) {
        let chunk = (0..EACH).map(|_| T::default()).collect();
        Arc::make_mut(&mut self.0).push(chunk);
    }
}

impl<T, const EACH: usize> Clone for Chunks<T, EACH> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T, const EACH: usize> Default for Chunks<T, EACH> {
    fn default() -> Self {
        Self(Arc::default())
    }
}
