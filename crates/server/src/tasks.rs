//! The server's own tasks. None of them dies in silence.

use std::sync::Arc;

use masthead_core::{Panic, contain_future};
use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinHandle};
use tracing::error;

use crate::limits::TASK_PANICS_MAX;

/// The panics of the server's tasks. After one the server may lack what the task did, so `/readyz` fails.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    panics: Mutex<Panics>,
}

#[derive(Debug, Default)]
struct Panics {
    count: u64,
    /// The first of them, as what is shown.
    first: Vec<String>,
}

impl Tasks {
    /// Runs a task. A panic in it ends the task, is logged with its name, and is remembered.
    pub(crate) fn spawn<T>(
        self: &Arc<Self>,
        name: impl Into<String>,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<()> {
        let tasks = self.clone();
        let name = name.into();
        tokio::spawn(async move {
            let report = |panic: &Panic| tasks.note(&name, panic);
            match contain_future(task, report).await {
                Ok(_) => {}
                Err(panic) => tasks.note(&name, &panic),
            }
        })
    }

    /// Runs a task that others end.
    pub(crate) fn spawn_abortable<T>(
        self: &Arc<Self>,
        name: impl Into<String>,
        task: impl Future<Output = T> + Send + 'static,
    ) -> AbortHandle {
        self.spawn(name, task).abort_handle()
    }

    fn note(&self, task: &str, panic: &Panic) {
        error!(task, %panic, "a task of the server panicked: restart the server, and report this");
        let mut panics = self.panics.lock();
        panics.count += 1;
        if panics.first.len() < TASK_PANICS_MAX {
            panics.first.push(format!("{task}: {panic}"));
        }
    }

    /// Number of panics so far.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.lock().count
    }

    /// The first panics, each with the name of its task; none if there was no panic.
    pub(crate) fn first_panics(&self) -> Option<String> {
        let panics = self.panics.lock();
        (panics.count > 0).then(|| panics.first.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_remembered_and_others_go_on() {
        let tasks = Arc::<Tasks>::default();
        let fine = tasks.spawn("fine", async {});
        let broken = tasks.spawn("namespace shop", async { panic!("no {}", "way") });
        fine.await.unwrap();
        broken.await.unwrap();
        assert_eq!(tasks.panics(), 1);
        assert_eq!(tasks.first_panics().as_deref(), Some("namespace shop: no way"));
        tasks.spawn("later", async {}).await.unwrap();
        assert_eq!(tasks.panics(), 1);
    }

    #[tokio::test]
    async fn the_texts_of_so_many_panics_are_kept_and_of_no_more() {
        let tasks = Arc::<Tasks>::default();
        for number in 0..=TASK_PANICS_MAX {
            tasks.spawn(format!("t{number}"), async { panic!("x") }).await.unwrap();
        }
        assert_eq!(tasks.panics(), TASK_PANICS_MAX as u64 + 1);
        let shown = tasks.first_panics().unwrap();
        assert_eq!(shown.matches(": x").count(), TASK_PANICS_MAX);
    }

    #[tokio::test]
    async fn a_task_that_is_aborted_is_no_panic() {
        let tasks = Arc::<Tasks>::default();
        let running = tasks.spawn("driver", std::future::pending::<()>());
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        assert_eq!((tasks.panics(), tasks.first_panics()), (0, None));
    }
}
