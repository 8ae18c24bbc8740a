//! The one judge: which rules does a history break, and where?
//!
//! The rules come in families, and each family has its module:
//!
//! | family | rules | module |
//! |---|---|---|
//! | watches | S1 – S6 | `watches`, with `walk` for one stream |
//! | initial events | S7 | `initial` |
//! | watches together | S8, S10 | `agreement`, `isolation` |
//! | watches in time | S9 | `liveness` |
//! | lists | L1 – L4 | `lists`, `resume` |
//! | writes | K1, K2 | `writes` |
//! | informers | I1, I2, I5 | `cache` |
//! | handlers | I3, I6 | `handlers` |
//! | informers in time | I4, I7 | `converge`, `polite` |
//! | sizes | I8 | `isolation` |
//!
//! **Invariant:** a verdict depends on the history alone. Rules are judged only as far as the
//! history goes: what lacks a time, an answer or the server's word about its window is not guessed.
//!
//! What a recorder should take care to write down, next to the requests and answers themselves:
//!
//! - S5: `oldest` on [`Open`](crate::history::Open) and on an [`End`](crate::history::End) with 410;
//!   S6: `current` on `Open`. Without them refusals are believed.
//! - S7, L2, K1, K2: every [`Write`](crate::history::Write) with its times, also without an answer.
//! - S9, I3, I4, I7: true times on one clock, [`Fault`](crate::history::Fault) windows, and a
//!   [`RunEnd`](crate::history::RunEnd) well after the last change.
//! - S10, I8: [`Gauge`](crate::history::Gauge)s.
//! - I1 to I6: [`Informer`](crate::history::Informer) when it looks at less than everything,
//!   [`Relisted`](crate::history::Relisted) for every list that was applied, and
//!   [`Registered`](crate::history::Registered) for handlers that may never be called.
//! - I7: a `who` of its own for each informer.
//!
//! The cost is near-linear: each distinct query folds the log once, each list and each fold at the
//! end of a watch reads one state.

mod agreement;
mod cache;
mod case;
mod clock;
mod converge;
mod handlers;
mod initial;
mod isolation;
mod life;
mod lists;
mod liveness;
mod polite;
mod resume;
mod rule;
mod walk;
mod watches;
mod writes;

use crate::history::{Commit, CommitOp, Record};
use crate::limits::VIOLATIONS_PER_RULE_MAX;
use crate::model::Log;
use crate::recorder::History;

pub use rule::Rule;

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The line of the history that shows it.
    pub line: usize,
    /// Which rule.
    pub rule: Rule,
    /// Whose fault it is: a stream's `sid`, an informer's `iid`, a list's `id`, a writer's `who`.
    pub subject: String,
    /// What was seen and what should have been.
    pub text: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { line, rule, subject, text } = self;
        write!(f, "line {line}: {rule} broken by {subject}: {text}")
    }
}

/// Judges a history by all rules. The violations come in the order of their lines; of each rule
/// at most [`VIOLATIONS_PER_RULE_MAX`] are kept.
pub fn check(history: &History) -> Vec<Violation> {
    let mut findings = Findings::default();
    let epochs = epochs(history, &mut findings);
    let case = case::Case::new(history, &epochs, &mut findings);
    watches::check(&case, &mut findings);
    agreement::check(&case, &mut findings);
    isolation::check(&case, &mut findings);
    lists::check(&case, &mut findings);
    resume::check(&case, &mut findings);
    writes::check(&case, &mut findings);
    for informer in case.informers.values() {
        let lives = life::lives(informer);
        cache::check(&case, informer, &lives, &mut findings);
        handlers::check(&case, informer, &lives, &mut findings);
        converge::check(&case, informer, &lives, &mut findings);
        polite::check(&case, informer, &mut findings);
    }
    findings.violations.sort();
    findings.violations
}

/// The log between two restores. A history that was never restored from a backup has one.
struct Epoch {
    /// The line that it begins on.
    line: usize,
    log: Log,
}

/// Builds the logs. What is wrong with the commits themselves is found here: K2 when revisions go
/// back, K1 when a commit does not follow from the state before it.
fn epochs(history: &History, findings: &mut Findings) -> Vec<Epoch> {
    let mut epochs = Vec::new();
    let mut log = Log::default();
    let mut begun = 0;
    for line in history.lines() {
        match &line.record {
            Record::Commit(commit) => {
                if let Some(text) = misfit(&log, commit) {
                    findings.add(Rule::K1, line.number, &commit.key, text);
                }
                let last = log.last_rv();
                if !log.push(commit.clone()) {
                    let text = format!("revision {} was committed after {last}", commit.rv);
                    findings.add(Rule::K2, line.number, &commit.key, text);
                }
            }
            Record::Restart(restart) if restart.restored => {
                let kept = log.commits().iter().take_while(|commit| commit.rv <= restart.rv);
                let next = kept.cloned().collect();
                epochs.push(Epoch { line: begun, log: std::mem::replace(&mut log, next) });
                begun = line.number;
            }
            Record::Restart(restart) if restart.rv < log.last_rv() => {
                let last = log.last_rv();
                let text = format!("came back at revision {}, had committed {last}", restart.rv);
                findings.add(Rule::K2, line.number, "store", text);
            }
            _ => {}
        }
    }
    epochs.push(Epoch { line: begun, log });
    epochs
}

/// Why a commit cannot follow the log so far, if it cannot.
fn misfit(log: &Log, commit: &Commit) -> Option<String> {
    let there = log.object_at(&commit.key, log.last_rv()).is_some();
    match (commit.op, there) {
        (CommitOp::Create, true) => Some(format!("revision {} creates what exists", commit.rv)),
        (CommitOp::Update | CommitOp::Delete, false) => {
            Some(format!("revision {} changes what does not exist", commit.rv))
        }
        _ => None,
    }
}

/// Collects violations.
#[derive(Default)]
struct Findings {
    violations: Vec<Violation>,
    counts: [usize; Rule::ALL.len()],
}

impl Findings {
    fn add(&mut self, rule: Rule, line: usize, subject: &str, text: impl Into<String>) {
        let count = &mut self.counts[rule as usize];
        *count += 1;
        if *count <= VIOLATIONS_PER_RULE_MAX {
            let subject = subject.to_owned();
            self.violations.push(Violation { line, rule, subject, text: text.into() });
        }
    }
}
