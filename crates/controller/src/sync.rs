//! The lock and the clock of the queue, in one place.
//!
//! Under `--cfg shuttle` the lock is shuttle's, so that a test walks the production code through many
//! interleavings, and time stands still.

#[cfg(not(shuttle))]
mod real {
    pub(crate) use parking_lot::Mutex;
    use tokio::time::Instant;
    pub(crate) use tokio::time::Sleep;

    use crate::queue::Moment;

    /// tokio's clock, which tests may pause.
    #[derive(Debug)]
    pub(crate) struct Clock(Instant);

    impl Clock {
        pub(crate) fn start() -> Self {
            Self(Instant::now())
        }

        pub(crate) fn now(&self) -> Moment {
            Moment::after(self.0.elapsed())
        }

        pub(crate) fn sleep_until(&self, moment: Moment) -> Sleep {
            tokio::time::sleep_until(self.0 + moment.since(Moment::START))
        }
    }
}

#[cfg(shuttle)]
mod real {
    use crate::queue::Moment;

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
    pub(crate) struct Clock;

    pub(crate) type Sleep = std::future::Pending<()>;

    impl Clock {
        pub(crate) fn start() -> Self {
            Self
        }

        pub(crate) fn now(&self) -> Moment {
            Moment::START
        }

        pub(crate) fn sleep_until(&self, _: Moment) -> Sleep {
            std::future::pending()
        }
    }
}

pub(crate) use real::*;
