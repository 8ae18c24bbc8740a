//! What is known about a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What one server has shown, shared by all reflectors that ask it: a clone is the same memory.
#[derive(Clone, Default, Debug)]
pub struct ServerMemory(Arc<Known>);

#[derive(Default, Debug)]
struct Known {
    no_streaming: AtomicBool,
}

impl ServerMemory {
    /// Nothing known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Did the server refuse to send initial events? It is not asked for them again (R2).
    pub fn refuses_streaming(&self) -> bool {
        self.0.no_streaming.load(Ordering::Relaxed)
    }

    /// Forgets, for example after the server was upgraded.
    pub fn forget(&self) {
        self.0.no_streaming.store(false, Ordering::Relaxed);
    }

    pub(crate) fn refused_streaming(&self) {
        self.0.no_streaming.store(true, Ordering::Relaxed);
    }
}
