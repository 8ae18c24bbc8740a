//! Has it synced, and if not, why (R24–R26).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use masthead_reflector::{Phase, Report};
use tokio::time::{Instant, timeout_at};

use crate::HandlerReport;
use crate::part::Part;
use crate::settings::Timeouts;
use crate::tasks::TaskEnded;
use crate::user_calls::UserPanics;

/// How far everything is that a factory follows. Usable whether or not all of it has synced.
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct SyncReport {
    /// Each resource, and each namespace of it that is followed by itself.
    pub resources: Vec<ResourceReport>,
    /// Tasks that ended although nothing told them to: see [`Factory::task_ended`](crate::Factory::task_ended).
    pub ended: Vec<TaskEnded>,
}

/// How far one resource is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResourceReport {
    /// As `plural.group`.
    pub resource: String,
    /// The namespace, if only one is followed.
    pub namespace: Option<String>,
    /// Whether a wait fails if the resource does not sync.
    pub required: bool,
    /// Whether the resource is synced before those that are not critical.
    pub critical: bool,
    /// Phase, objects, bytes, pages, attempts, errors, next try.
    pub report: Report,
    /// Bytes that the cache takes.
    pub memory: usize,
    /// Objects that are there.
    pub objects: usize,
    /// Objects that could not be read as their type.
    pub undecodable: u64,
    /// Functions of the user that panicked.
    pub panics: UserPanics,
    /// Those who listen.
    pub handlers: Vec<HandlerReport>,
}

impl ResourceReport {
    pub(crate) fn of(part: &Part) -> Self {
        let (demand, memory) = (part.demand(), part.cache.memory());
        Self {
            resource: part.resource().to_string(),
            namespace: part.wanted.namespace.clone(),
            required: demand.required,
            critical: demand.critical,
            report: part.report().borrow().clone(),
            memory: memory.total(),
            objects: memory.objects,
            undecodable: part.reading.failures(),
            panics: part.reading.calls().panics(),
            handlers: part.readers(),
        }
    }

    /// Returns `true` once the first list was applied whole.
    pub fn synced(&self) -> bool {
        self.report.synced
    }

    /// What a person can do, if something is wrong.
    pub fn advice(&self) -> Option<&'static str> {
        self.report.advice()
    }
}

impl fmt::Display for ResourceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, namespace, report, .. } = self;
        write!(f, "{resource}")?;
        if let Some(namespace) = namespace {
            write!(f, " in {namespace}")?;
        }
        let (pages, attempts) = (report.pages, report.attempts);
        write!(f, ": {report}, {pages} pages, attempt {attempts}")?;
        self.advice().map_or(Ok(()), |advice| write!(f, ". {advice}"))
    }
}

impl SyncReport {
    pub(crate) fn of(parts: &[Arc<Part>]) -> Self {
        let resources = parts.iter().map(|part| ResourceReport::of(part)).collect();
        // All parts that are waited for are of one factory.
        let ended = parts.first().map(|part| part.tasks.ended()).unwrap_or_default();
        Self { resources, ended }
    }

    /// Returns `true` if everything has synced and is followed.
    pub fn is_complete(&self) -> bool {
        self.missing().next().is_none()
    }

    /// What has not synced, or is not followed any more.
    pub fn missing(&self) -> impl Iterator<Item = &ResourceReport> {
        let missing = |it: &&ResourceReport| !it.synced() || it.report.ended.is_some();
        self.resources.iter().filter(missing)
    }
}

impl fmt::Display for SyncReport {
    /// A line for each resource, and one for each task that ended unexpectedly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.resources.iter().try_for_each(|resource| writeln!(f, "{resource}"))?;
        self.ended.iter().try_for_each(|ended| writeln!(f, "{ended}"))
    }
}

/// Something that is required did not sync. The rest can be used; the report says what that is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The server says no, and waiting does not help. The reflector tries on all the same, since rights
    /// and definitions often come later.
    #[error("{what}")]
    Refused {
        /// The resource and the server's word.
        what: String,
        /// How far everything was.
        report: SyncReport,
    },
    /// Nothing follows the resource any more, because of a bug. The program has to be started again.
    #[error("{what}")]
    Ended {
        /// The resource and what happened.
        what: String,
        /// How far everything was.
        report: SyncReport,
    },
    /// It took too long.
    #[error("not synced after {after:?}: {what}")]
    TimedOut {
        /// What is missing, and how far it is.
        what: String,
        /// The time-out that passed.
        after: Duration,
        /// How far everything was.
        report: SyncReport,
    },
}

impl SyncError {
    /// How far everything was.
    pub fn report(&self) -> &SyncReport {
        match self {
            Self::Refused { report, .. }
            | Self::Ended { report, .. }
            | Self::TimedOut { report, .. } => report,
        }
    }
}

/// How a wait for one part ended.
enum Waited {
    Synced,
    Refused,
    Ended,
    TimedOut(Duration),
}

/// Waits for each part within its time and for all within theirs; fails as soon as a required one is
/// refused (R26).
pub(crate) async fn wait(
    parts: &[Arc<Part>],
    timeouts: &Timeouts,
) -> Result<SyncReport, SyncError> {
    let began = Instant::now();
    let waits = parts.iter().map(|part| async move {
        let own = part.demand().sync_timeout.unwrap_or(timeouts.resource_sync);
        let after = own.min(timeouts.whole_sync);
        let waited = timeout_at(began + after, wait_for(part)).await;
        (part, waited.unwrap_or(Waited::TimedOut(after)))
    });
    let mut waits: FuturesUnordered<_> = waits.collect();
    while let Some((part, waited)) = waits.next().await {
        if !part.demand().required {
            continue;
        }
        let (what, report) = (ResourceReport::of(part).to_string(), SyncReport::of(parts));
        match waited {
            Waited::Synced => {}
            Waited::Refused => return Err(SyncError::Refused { what, report }),
            Waited::Ended => return Err(SyncError::Ended { what, report }),
            Waited::TimedOut(after) => return Err(SyncError::TimedOut { what, after, report }),
        }
    }
    Ok(SyncReport::of(parts))
}

async fn wait_for(part: &Part) -> Waited {
    let mut report = part.report();
    let is_settled =
        |report: &Report| report.synced || report.ended.is_some() || is_refused(report);
    match report.wait_for(is_settled).await {
        Ok(report) if report.ended.is_some() => Waited::Ended,
        Ok(report) if report.synced => Waited::Synced,
        _ => Waited::Refused,
    }
}

/// Returns `true` if the server refused in a way that waiting alone does not mend.
fn is_refused(report: &Report) -> bool {
    let is_refusal = report.last_error.as_ref().is_some_and(|error| error.class.is_refusal());
    report.phase == Phase::Failed && !report.synced && is_refusal
}
