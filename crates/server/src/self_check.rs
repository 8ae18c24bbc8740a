//! Kept and shared views are compared with fresh ones while the server runs (V1).
//!
//! A view that is made once and sent many times is wrong many times if it is wrong. So one use in a number
//! of them is compared with a view that is made anew. One that differs is counted, logged and replaced by
//! the fresh one. The counters are those of the whole process: what they find is a defect of the program.

use std::sync::atomic::{AtomicU64, Ordering};

use tracing::error;

/// What is known about one kind of view.
#[derive(Debug)]
pub(crate) struct ViewCheck {
    /// The name of the view, as the label of the metrics.
    pub(crate) view: &'static str,
    right: AtomicU64,
    wrong: AtomicU64,
}

/// Compressed parts of lists.
pub(crate) static GZIP_PIECES: ViewCheck = ViewCheck::new("gzip_pieces");
/// Frames of events that several watches are sent.
pub(crate) static SHARED_FRAMES: ViewCheck = ViewCheck::new("shared_frames");
/// Bodies that caches hold compressed.
pub(crate) static COMPRESSED_BODIES: ViewCheck = ViewCheck::new("compressed_bodies");

/// All kinds of views that are checked.
pub(crate) static ALL: [&ViewCheck; 3] = [&GZIP_PIECES, &SHARED_FRAMES, &COMPRESSED_BODIES];

impl ViewCheck {
    const fn new(view: &'static str) -> Self {
        Self { view, right: AtomicU64::new(0), wrong: AtomicU64::new(0) }
    }

    /// Notes the result of a comparison.
    pub(crate) fn record(&self, is_right: bool) {
        if is_right {
            self.right.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let wrong = self.wrong.fetch_add(1, Ordering::Relaxed) + 1;
        let view = self.view;
        error!(
            view,
            wrong, "a kept view differs from a fresh one and is not sent; please report this"
        );
    }

    /// How many comparisons found the view to be right, and how many wrong.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.right.load(Ordering::Relaxed), self.wrong.load(Ordering::Relaxed))
    }
}
