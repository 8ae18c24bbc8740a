//! The tasks of a factory. One that ends although nothing told it to is an error that is seen.

use std::future::Future;
use std::sync::Arc;

use masthead_core::{Panic, contain_future, planted};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::error;

use crate::limits::TASKS_ENDED_MAX;

/// A task that ended although nothing told it to.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{task} ended unexpectedly: {reason}")]
#[non_exhaustive]
pub struct TaskEnded {
    /// What the task does.
    pub task: Arc<str>,
    /// How it ended: the text of its panic, or that it returned.
    pub reason: Arc<str>,
}

impl TaskEnded {
    /// A task that ended so.
    pub fn new(task: &str, reason: &str) -> Self {
        Self { task: task.into(), reason: reason.into() }
    }

    /// A task that panicked.
    pub fn panicked(task: &str, panic: &Panic) -> Self {
        Self::new(task, &format!("it panicked: {panic}"))
    }

    /// A task that returned before it was stopped.
    pub fn returned(task: &str) -> Self {
        Self::new(task, "it returned before it was stopped")
    }
}

/// The tasks of a factory: those that ended unexpectedly, the first ones first.
#[derive(Default, Debug)]
pub(crate) struct Tasks(watch::Sender<Vec<TaskEnded>>);

impl Tasks {
    /// Spawns a task. A panic, or none as its value, is an unexpected end: it is logged, noted for all who
    /// watch, and given to `on_end`. A task that is aborted just ends.
    pub(crate) fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        name: String,
        task: impl Future<Output = Option<T>> + Send + 'static,
        on_end: impl FnOnce(&TaskEnded) + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        let tasks = self.clone();
        tokio::spawn(async move {
            let in_drop = |panic: &Panic| error!(task = name, %panic, "destructor panicked");
            let ended = match contain_future(task, in_drop).await {
                Ok(Some(value)) => return Some(value),
                Ok(None) => TaskEnded::returned(&name),
                Err(panic) => TaskEnded::panicked(&name, &panic),
            };
            error!(task = name, reason = %ended.reason, "task ended unexpectedly");
            on_end(&ended);
            tasks.note(ended);
            None
        })
    }

    fn note(&self, ended: TaskEnded) {
        if planted::on("task_end_not_noted") {
            return;
        }
        self.0.send_modify(|all| {
            if all.len() < TASKS_ENDED_MAX {
                all.push(ended);
            }
        });
    }

    /// Those that ended unexpectedly.
    pub(crate) fn ended(&self) -> Vec<TaskEnded> {
        self.0.borrow().clone()
    }

    /// Waits for the first that ends unexpectedly.
    pub(crate) async fn first_ended(&self) -> TaskEnded {
        let mut ended = self.0.subscribe();
        let ended = ended.wait_for(|all| !all.is_empty()).await;
        ended.expect("the sender is held with `self`")[0].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_unexpectedly_is_noted_and_the_first_ones_are_kept() {
        let tasks = Arc::new(Tasks::default());
        for n in 0..=TASKS_ENDED_MAX {
            assert_eq!(tasks.ended().len(), n);
            let task = async move {
                assert!(n != 1, "no");
                None::<()>
            };
            assert_eq!(tasks.spawn(format!("task {n}"), task, |_| ()).await.unwrap(), None);
        }
        let ended: Vec<_> = tasks.ended().iter().map(ToString::to_string).collect();
        assert_eq!(ended.len(), TASKS_ENDED_MAX);
        let returned = "task 0 ended unexpectedly: it returned before it was stopped";
        assert_eq!(ended[..2], [returned, "task 1 ended unexpectedly: it panicked: no"]);
        assert_eq!(tasks.first_ended().await.to_string(), returned);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_was_told_to_end_or_is_aborted_just_ends() {
        let tasks = Arc::new(Tasks::default());
        assert_eq!(tasks.spawn("told".into(), async { Some(7) }, |_| ()).await.unwrap(), Some(7));
        let waits = tasks.spawn("waits".into(), std::future::pending::<Option<()>>(), |_| ());
        waits.abort();
        assert!(waits.await.unwrap_err().is_cancelled());
        assert_eq!(tasks.ended(), []);
    }
}
