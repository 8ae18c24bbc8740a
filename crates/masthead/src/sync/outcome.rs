//! What came of it.

use std::fmt::Write;
use std::time::Duration;

use masthead_informer::{ResourceReport, SyncReport};
use masthead_reflector::{Class, Phase};
use serde_json::{Value, json};

use super::{Absent, Wanted};
use crate::client::rights::advice;
use crate::client::table::{Row, Table};
use crate::client::units::{bytes, took};

/// How far everything came.
pub(super) struct Outcome<'a> {
    pub(super) wanted: &'a [Wanted],
    /// In the same order.
    pub(super) report: &'a SyncReport,
    /// Optional resources that the server does not have.
    pub(super) absent: &'a [Absent],
    pub(super) took: Duration,
    pub(super) interrupted: bool,
}

impl Outcome<'_> {
    /// Returns `true` if every required resource has synced.
    pub(super) fn succeeded(&self) -> bool {
        self.report.resources.iter().all(|it| it.synced() || !it.required)
    }

    fn each(&self) -> impl Iterator<Item = (&Wanted, &ResourceReport)> {
        self.wanted.iter().zip(&self.report.resources)
    }

    /// A row a resource, and below what is wrong with those that did not sync.
    pub(super) fn table(&self) -> String {
        let head = [
            "RESOURCE",
            "NAMESPACE",
            "OBJECTS",
            "BYTES",
            "MEMORY",
            "PAGES",
            "ATTEMPTS",
            "TIME",
            "STATUS",
        ];
        let mut rows = vec![Row::new(head.map(str::to_owned).into())];
        rows.extend(self.each().map(|(wanted, it)| self.row(wanted, it)));
        rows.extend(self.absent.iter().map(Absent::row));
        let mut text = Table::default().print(&rows);
        for (wanted, it) in self.each().filter(|(_, it)| !it.synced()) {
            let (why, advice) = self.reason(wanted, it);
            write!(text, "\n{}: {why}\n  {advice}\n", wanted.resource)
                .expect("a text takes what is written");
        }
        for absent in self.absent {
            write!(text, "\n{}: {}\n  {}\n", absent.name, absent.why, Absent::ADVICE)
                .expect("a text takes what is written");
        }
        text
    }

    fn row(&self, wanted: &Wanted, it: &ResourceReport) -> Row {
        let optional = if it.required || it.synced() { "" } else { " (optional)" };
        let memory = u64::try_from(it.memory).unwrap_or(u64::MAX);
        Row::new(vec![
            it.resource.clone(),
            wanted.namespace.clone().unwrap_or_else(|| "*".to_owned()),
            it.objects.to_string(),
            bytes(it.report.bytes),
            bytes(memory),
            it.report.pages.to_string(),
            it.report.attempts.to_string(),
            took(self.time(it)),
            self.status(it) + optional,
        ])
    }

    /// Until it had synced, or until now.
    fn time(&self, it: &ResourceReport) -> Duration {
        if it.synced() { it.report.elapsed } else { self.took }
    }

    fn status(&self, it: &ResourceReport) -> String {
        match refused(it) {
            _ if it.report.ended.is_some() => "failed".to_owned(),
            _ if it.synced() => "synced".to_owned(),
            Some(class) => class.to_string(),
            None if self.interrupted => it.report.phase.to_string(),
            None => "timed out".to_owned(),
        }
    }

    /// Why it did not sync, and what to do.
    fn reason(&self, wanted: &Wanted, it: &ResourceReport) -> (String, String) {
        let after = took(self.took);
        let (verb, phase) =
            (if self.interrupted { "interrupted" } else { "given up" }, it.report.phase);
        if let Some(ended) = &it.report.ended {
            return (ended.to_string(), it.advice().unwrap_or_default().to_owned());
        }
        match &it.report.last_error {
            Some(error) if refused(it).is_some() => (
                error.text.to_string(),
                advice(&wanted.resource, wanted.namespace.as_deref(), error.class),
            ),
            Some(error) => {
                let why = format!("{verb} after {after}, {phase}; last error: {}", error.text);
                (why, advice(&wanted.resource, wanted.namespace.as_deref(), error.class))
            }
            None if it.report.attempts == 0 => {
                let advice = "It waits for what is critical: see what is wrong with that.";
                (format!("not begun after {after}"), advice.to_owned())
            }
            None => {
                let advice = "Nothing went wrong: give it more time with --sync-timeout.";
                (format!("{verb} after {after}, {phase}"), advice.to_owned())
            }
        }
    }

    /// The same as one document.
    pub(super) fn json(&self) -> String {
        let found = self.each().map(|(wanted, it)| self.one(wanted, it));
        let resources: Vec<_> = found.chain(self.absent.iter().map(Absent::json)).collect();
        let document = json!({
            "complete": self.report.is_complete() && self.absent.is_empty(),
            "interrupted": self.interrupted,
            "seconds": self.took.as_secs_f64(),
            "resources": resources,
        });
        format!("{document:#}\n")
    }

    fn one(&self, wanted: &Wanted, it: &ResourceReport) -> Value {
        let ResourceReport { resource, required, critical, report, memory, objects, .. } = it;
        let mut one = json!({
            "resource": resource, "namespace": wanted.namespace, "required": required,
            "critical": critical, "synced": it.synced(), "status": self.status(it),
            "objects": objects, "bytes": report.bytes, "memoryBytes": memory,
            "pages": report.pages, "attempts": report.attempts,
            "seconds": self.time(it).as_secs_f64(), "resourceVersion": report.revision.to_string(),
        });
        if !it.synced() {
            let (why, advice) = self.reason(wanted, it);
            one["reason"] = why.into();
            one["advice"] = advice.into();
        }
        one
    }
}

impl Absent {
    const ADVICE: &'static str = Class::NotFound.advice();

    fn row(&self) -> Row {
        let unknown = ["-"; 7].map(str::to_owned);
        let name = [self.name.clone()];
        let status = ["not found (optional)".to_owned()];
        Row::new(name.into_iter().chain(unknown).chain(status).collect())
    }

    fn json(&self) -> Value {
        json!({
            "resource": self.name, "required": false, "synced": false, "status": "not found",
            "reason": self.why, "advice": Self::ADVICE,
        })
    }
}

/// The class of the server's refusal, if it refused.
fn refused(it: &ResourceReport) -> Option<Class> {
    let class = it.report.last_error.as_ref()?.class;
    (class.is_refusal() && it.report.phase == Phase::Failed).then_some(class)
}
