//! What goes wrong with the connection: told once when it begins, and once when it is over.

use std::io::{IsTerminal, Write};
use std::sync::Arc;

use masthead_informer::upstream::kube_client::core::DynamicObject;
use masthead_informer::{Factory, Informer};
use masthead_reflector::{Class, Phase, Relists, Report};
use tokio::sync::Notify;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::client::limits::RECOVERY;

/// Follows how an informer gets on with its server.
pub(super) struct Troubles {
    errors: Arc<Notify>,
    /// Errors and lists up to the last time that all was well.
    known: u64,
    relists: Relists,
    /// What the report was when something went wrong that is not over.
    under_way: Option<Report>,
    /// When it is looked whether that is over. It goes on while other things happen.
    tick: Interval,
}

impl Troubles {
    /// Of all that a factory will make.
    pub(super) fn of(factory: &Factory) -> Self {
        let errors = Arc::new(Notify::new());
        let notified = errors.clone();
        factory.on_error(move |_| notified.notify_one());
        Self::new(errors)
    }

    fn new(errors: Arc<Notify>) -> Self {
        let mut tick = interval(RECOVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { errors, known: 0, relists: Relists::default(), under_way: None, tick }
    }

    /// Waits for something to tell. Nothing is lost if it is dropped before.
    pub(super) async fn news(&mut self, informer: &Informer<DynamicObject>) -> String {
        loop {
            if self.under_way.is_none() {
                self.errors.notified().await;
            } else {
                self.tick.tick().await;
            }
            if let Some(text) = self.look(report_of(informer)) {
                return text;
            }
        }
    }

    /// What there is to tell of a report.
    fn look(&mut self, report: Report) -> Option<String> {
        match &self.under_way {
            None if report.errors.total() == self.known || is_refused(&report) => None,
            None => {
                let text = begun(&report);
                self.under_way = Some(report);
                Some(text)
            }
            // Bytes show that the server answers; an open connection alone does not.
            Some(before) if report.phase == Phase::Synced && report.bytes > before.bytes => {
                self.all_is_well(&report)
            }
            Some(_) => None,
        }
    }

    /// Ends what is under way; what there is to tell of that.
    pub(super) fn all_is_well(&mut self, report: &Report) -> Option<String> {
        let missed = report.relists != self.relists;
        (self.known, self.relists) = (report.errors.total(), report.relists);
        self.under_way.take().map(|before| over(&before, missed, report))
    }
}

/// How far the informer is: it follows one namespace, or all at once.
pub(super) fn report_of(informer: &Informer<DynamicObject>) -> Report {
    informer.reports().into_iter().next().unwrap_or_default()
}

/// A refusal before anything was read ends the command, which says why.
fn is_refused(report: &Report) -> bool {
    let is_refusal = report.last_error.as_ref().is_some_and(|error| error.class.is_refusal());
    is_refusal && !report.synced
}

fn begun(report: &Report) -> String {
    let what = report.last_error.as_ref().map_or("connection lost", |error| &*error.text);
    let then = match report.last_error.as_ref().map(|error| error.class) {
        Some(Class::Expired) => "reading the list again".to_owned(),
        _ if report.synced => format!("resuming from revision {}", report.revision),
        Some(class) => format!("trying again. {}", class.advice()),
        None => "trying again".to_owned(),
    };
    format!("{what}; {then}…")
}

fn over(before: &Report, missed: bool, now: &Report) -> String {
    let revision = now.revision;
    match (before.synced, missed) {
        (false, _) => format!("connected, at revision {revision}"),
        (true, false) => format!("connected again, at revision {revision}: nothing was missed"),
        (true, true) => format!(
            "the list was read again, at revision {revision}: what happened since {} is printed as \
             one change for each object",
            before.revision
        ),
    }
}

/// Says it where it does not get mixed up with the output.
pub(super) fn tell(text: &str) {
    let mut terminal = std::io::stderr();
    let coloured = terminal.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let (begin, end) = if coloured { ("\x1b[33m", "\x1b[0m") } else { ("", "") };
    // Whoever listened may be gone; the output counts.
    let _ = writeln!(terminal, "{begin}masthead: {text}{end}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(phase: Phase, bytes: u64, expired: u32) -> Report {
        let relists = Relists { expired, ..Relists::default() };
        let revision = masthead_core::Revision(bytes);
        Report { phase, bytes, revision, relists, synced: true, ..Report::default() }
    }

    #[tokio::test]
    async fn an_end_is_told_when_bytes_come_and_says_whether_something_was_missed() {
        let mut it = Troubles::new(Arc::default());
        it.under_way = Some(report(Phase::Failed, 5, 0));
        assert_eq!(it.look(report(Phase::Failed, 5, 0)), None);
        assert_eq!(it.look(report(Phase::Synced, 5, 0)), None, "nothing has come yet");
        let text = it.look(report(Phase::Synced, 6, 0)).unwrap();
        assert_eq!(text, "connected again, at revision 6: nothing was missed");
        it.under_way = Some(report(Phase::Connecting, 6, 1));
        let text = it.look(report(Phase::Synced, 9, 1)).unwrap();
        assert!(text.starts_with("the list was read again, at revision 9"), "{text}");
        assert_eq!(it.look(report(Phase::Synced, 9, 1)), None, "nothing new");
    }
}
