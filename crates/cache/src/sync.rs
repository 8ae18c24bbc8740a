//! Every atomic, lock and waker of this crate, in one place.
//!
//! Under `--cfg shuttle` they are shuttle's, so that a test walks the production code through many
//! interleavings. Nothing else in this crate may name `std::sync::atomic`, `parking_lot` or `arc_swap`.

#[cfg(not(shuttle))]
mod real {
    use std::task::Waker;

    use arc_swap::RefCnt;

    pub(crate) use parking_lot::Mutex;
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    /// A place for one shared value that one thread replaces and any thread reads without waiting.
    #[derive(Debug)]
    pub(crate) struct Cell<P: RefCnt>(arc_swap::ArcSwapAny<Option<P>>);

    /// What [`Cell::load`] gives: a look at the value without touching its count.
    pub(crate) type Loaded<P> = arc_swap::Guard<Option<P>>;

    impl<P: RefCnt> Cell<P> {
        pub(crate) fn new(value: Option<P>) -> Self {
            Self(arc_swap::ArcSwapAny::new(value))
        }

        pub(crate) fn load(&self) -> Loaded<P> {
            self.0.load()
        }

        pub(crate) fn get(&self) -> Option<P> {
            self.0.load_full()
        }

        pub(crate) fn set(&self, value: Option<P>) {
            self.0.store(value);
        }

        pub(crate) fn swap(&self, value: Option<P>) -> Option<P> {
            self.0.swap(value)
        }
    }

    impl<P: RefCnt> Default for Cell<P> {
        fn default() -> Self {
            Self::new(None)
        }
    }

    /// The waker of the one task that waits.
    #[derive(Debug, Default)]
    pub(crate) struct WakerCell(atomic_waker::AtomicWaker);

    impl WakerCell {
        pub(crate) fn register(&self, waker: &Waker) {
            self.0.register(waker);
        }

        pub(crate) fn take(&self) -> Option<Waker> {
            self.0.take()
        }
    }
}

#[cfg(shuttle)]
mod real {
    use std::task::Waker;

    pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    /// shuttle's mutex with the interface of the one in production.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }

    #[derive(Debug)]
    pub(crate) struct Cell<P>(Mutex<Option<P>>);

    #[derive(Debug)]
    pub(crate) struct Loaded<P>(Option<P>);

    impl<P> std::ops::Deref for Loaded<P> {
        type Target = Option<P>;
        fn deref(&self) -> &Option<P> {
            &self.0
        }
    }

    impl<P: Clone> Cell<P> {
        pub(crate) fn new(value: Option<P>) -> Self {
            Self(Mutex::new(value))
        }

        pub(crate) fn load(&self) -> Loaded<P> {
            Loaded(self.get())
        }

        pub(crate) fn get(&self) -> Option<P> {
            self.0.lock().clone()
        }

        pub(crate) fn set(&self, value: Option<P>) {
            drop(self.swap(value));
        }

        pub(crate) fn swap(&self, value: Option<P>) -> Option<P> {
            std::mem::replace(&mut *self.0.lock(), value)
        }
    }

    impl<P: Clone> Default for Cell<P> {
        fn default() -> Self {
            Self::new(None)
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct WakerCell(Mutex<Option<Waker>>);

    impl WakerCell {
        pub(crate) fn register(&self, waker: &Waker) {
            *self.0.lock() = Some(waker.clone());
        }

        pub(crate) fn take(&self) -> Option<Waker> {
            self.0.lock().take()
        }
    }
}

pub(crate) use real::*;
/// What stands in an [`ArcCell`]: with one count instead of two, since nothing here is held weakly.
pub(crate) use triomphe::Arc;

pub(crate) type ArcCell<T> = Cell<Arc<T>>;
/// The same for many of a sort in one allocation.
pub(crate) type SliceCell<T> = Cell<triomphe::ThinArc<(), T>>;
