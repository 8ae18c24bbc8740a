//! Planted bugs: lines of the production code that are wrong on demand, so that a test can show
//! that the checkers would notice. Outside `--cfg planted` every switch is the constant `false`.

/// Returns `true` if the planted bug of this name is switched on, on this thread.
#[cfg(not(planted))]
#[inline]
#[must_use]
pub const fn on(_bug: &str) -> bool {
    false
}

#[cfg(planted)]
pub use switched::{on, reached, with};

#[cfg(planted)]
mod switched {
    use std::cell::Cell;

    std::thread_local! {
        static ACTIVE: Cell<Option<&'static str>> = const { Cell::new(None) };
        static REACHED: Cell<bool> = const { Cell::new(false) };
    }

    /// Returns `true` if the planted bug of this name is switched on, on this thread.
    #[must_use]
    pub fn on(bug: &str) -> bool {
        let active = ACTIVE.get() == Some(bug);
        if active {
            REACHED.set(true);
        }
        active
    }

    /// Returns `true` if the active bug's line was executed since [`with`] began.
    #[must_use]
    pub fn reached() -> bool {
        REACHED.get()
    }

    /// Runs `body` with one bug switched on; off again afterwards, also on panic.
    pub fn with<T>(bug: &'static str, body: impl FnOnce() -> T) -> T {
        struct Off;
        impl Drop for Off {
            fn drop(&mut self) {
                ACTIVE.set(None);
            }
        }
        let _off = Off;
        REACHED.set(false);
        ACTIVE.set(Some(bug));
        body()
    }
}
