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

/// How far everything is that a factory follows. Usable whether or not all of it has synced.
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct SyncReport {
    /// Each resource, and each namespace of it that is followed by itself.
    pub resources: Vec<ResourceReport>,
}

/// How far one resource is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResourceReport {
    /// As `plural.group`.
    pub resource: String,
    /// The namespace, if only one is followed.
    pub namespace: Option<String>,
    /// Does a wait fail if it does not sync?
    pub required: bool,
    /// Does it come before others?
    pub critical: bool,
    /// Phase, objects, bytes, pages, attempts, errors, next try.
    pub report: Report,
    /// Bytes that the cache takes.
    pub memory: usize,
    /// Objects that are there.
    pub objects: usize,
    /// Objects that could not be read as their type.
    pub undecodable: u64,
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
            handlers: part.readers(),
        }
    }

    /// Was the first list applied whole?
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
        Self { resources: parts.iter().map(|part| ResourceReport::of(part)).collect() }
    }

    /// Has everything synced?
    pub fn is_complete(&self) -> bool {
        self.resources.iter().all(ResourceReport::synced)
    }

    /// What has not synced.
    pub fn missing(&self) -> impl Iterator<Item = &ResourceReport> {
        self.resources.iter().filter(|resource| !resource.synced())
    }
}

impl fmt::Display for SyncReport {
    /// A line for each resource.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.resources.iter().try_for_each(|resource| writeln!(f, "{resource}"))
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
            Self::Refused { report, .. } | Self::TimedOut { report, .. } => report,
        }
    }
}

/// How a wait for one part ended.
enum Waited {
    Synced,
    Refused,
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
            Waited::TimedOut(after) => return Err(SyncError::TimedOut { what, after, report }),
        }
    }
    Ok(SyncReport::of(parts))
}

async fn wait_for(part: &Part) -> Waited {
    let mut report = part.report();
    let settled = report.wait_for(|report| report.synced || is_refused(report)).await;
    match settled {
        Ok(report) if report.synced => Waited::Synced,
        _ => Waited::Refused,
    }
}

/// Did the server say no in a way that time alone does not mend?
fn is_refused(report: &Report) -> bool {
    let is_refusal = report.last_error.as_ref().is_some_and(|error| error.class.is_refusal());
    report.phase == Phase::Failed && !report.synced && is_refusal
}
