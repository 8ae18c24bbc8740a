//! Whether what replicas did was right, by what they wrote down and by what the server has.

use std::collections::BTreeMap;

use super::record::{Event, Line};

/// A commit of the server, in the order of revisions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Commit {
    /// The lease, with its holder and the number of the term.
    Lease(Leader),
    /// A new ship, with who made it.
    Ship(Leader),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Leader {
    pub(super) replica: String,
    pub(super) term: i32,
}

/// By the replicas' own record: never two act, none in a term that is over, and none on a cache that is
/// older than what it wrote itself.
pub(super) fn judge(lines: &[Line]) -> Vec<String> {
    let mut judge = Judge::default();
    for line in lines {
        judge.read(line);
    }
    judge.wrong
}

/// By the server's log: whoever made a ship held the lease at that revision, also if nobody heard of it.
pub(super) fn judge_log(commits: &[Commit]) -> Vec<String> {
    let (mut holder, mut wrong) = (None, Vec::new());
    for commit in commits {
        match commit {
            Commit::Lease(leader) => holder = Some(leader),
            Commit::Ship(maker) if holder == Some(maker) => {}
            Commit::Ship(maker) => wrong.push(format!("{maker:?} wrote, {holder:?} led")),
        }
    }
    wrong
}

#[derive(Default)]
struct Judge<'a> {
    begun: BTreeMap<(u64, u64), (i32, &'a str)>,
    /// Reconciles that are under way. Of who sleeps none is: what becomes of it then is judged by its term.
    open: Vec<(u64, u64)>,
    /// The newest term that somebody reconciled in, and who.
    newest: Option<(i32, u64)>,
    /// What each replica wrote last for each key.
    wrote: BTreeMap<(u64, &'a str), u64>,
    wrong: Vec<String>,
}

impl<'a> Judge<'a> {
    fn read(&mut self, line: &'a Line) {
        let (replica, id) = (line.replica, (line.replica, line.reconcile.unwrap_or_default()));
        match &line.event {
            Event::Begins { term, key, cache } => {
                self.begun.insert(id, (*term, key));
                self.open.push(id);
                self.leads(line, *term);
                let wrote = self.wrote.get(&(replica, key)).copied().unwrap_or_default();
                if *cache < wrote {
                    self.wrong.push(format!("it wrote at {wrote} before: {line:?}"));
                }
            }
            Event::Acts => match self.begun.get(&id) {
                Some((term, _)) => self.leads(line, *term),
                None => self.wrong.push(format!("it never began: {line:?}")),
            },
            Event::Wrote { revision } => {
                let key = self.begun.get(&id).map(|(_, key)| *key).unwrap_or_default();
                let wrote = self.wrote.entry((replica, key)).or_default();
                *wrote = (*wrote).max(*revision);
            }
            Event::Ends => self.open.retain(|it| *it != id),
            Event::Asleep | Event::Killed => self.open.retain(|it| it.0 != replica),
            Event::Means | Event::Panics | Event::Held | Event::Awake => {}
        }
    }

    /// Somebody acts: it has to lead, and alone.
    fn leads(&mut self, line: &Line, term: i32) {
        let newest = *self.newest.get_or_insert((term, line.replica));
        if term < newest.0 || (term == newest.0 && line.replica != newest.1) {
            self.wrong.push(format!("replica {} led in term {}: {line:?}", newest.1, newest.0));
        }
        self.newest = Some(newest.max((term, line.replica)));
        if let Some(other) = self.open.iter().find(|it| it.0 != line.replica) {
            self.wrong.push(format!("replica {} acts too: {line:?}", other.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(replica: u64, reconcile: u64, event: Event) -> Line {
        Line { replica, reconcile: Some(reconcile), event }
    }

    fn begins(replica: u64, reconcile: u64, term: i32, cache: u64) -> Line {
        line(replica, reconcile, Event::Begins { term, key: "default/fleet-0".to_owned(), cache })
    }

    fn verdict(lines: &[Line], wanted: &[&str]) {
        let wrong = judge(lines);
        let same = wrong.len() == wanted.len();
        let all = wrong.iter().zip(wanted).all(|(wrong, wanted)| wrong.contains(wanted));
        assert!(same && all, "{wrong:?}, but wanted {wanted:?}");
    }

    /// One leads, is put to sleep, and ends what it had begun when it wakes; the other is killed.
    fn good() -> Vec<Line> {
        vec![
            begins(1, 0, 0, 10),
            line(1, 0, Event::Acts),
            line(1, 0, Event::Wrote { revision: 11 }),
            line(1, 0, Event::Ends),
            begins(1, 1, 0, 11),
            line(1, 1, Event::Means),
            line(1, 1, Event::Asleep),
            begins(2, 0, 1, 9),
            line(2, 0, Event::Acts),
            line(1, 1, Event::Awake),
            line(1, 1, Event::Ends),
            line(2, 0, Event::Killed),
            begins(1, 2, 2, 12),
            line(1, 2, Event::Ends),
        ]
    }

    #[test]
    fn leaders_one_after_the_other_are_right() {
        verdict(&good(), &[]);
    }

    #[test]
    fn two_who_act_at_once_are_found() {
        let mut lines = good();
        lines.retain(|it| it.event != Event::Killed);
        verdict(&lines, &["replica 2 acts too"]);
        let mut lines = good();
        lines.retain(|it| it.event != Event::Asleep);
        verdict(&lines, &["replica 1 acts too"; 2]);
    }

    #[test]
    fn one_who_acts_when_it_wakes_is_found() {
        let mut lines = good();
        let woken = lines.iter().position(|it| it.event == Event::Awake).unwrap();
        lines.insert(woken + 1, line(1, 1, Event::Acts));
        verdict(&lines, &["replica 2 led in term 1", "replica 2 acts too"]);
        // Also if the other had nothing to do just then.
        lines.insert(woken, line(2, 0, Event::Ends));
        verdict(&lines, &["replica 2 led in term 1"]);
    }

    #[test]
    fn one_who_begins_in_a_term_that_is_over_or_of_another_is_found() {
        let over = [begins(1, 0, 3, 10), line(1, 0, Event::Ends), begins(2, 0, 2, 10)];
        verdict(&over, &["replica 1 led in term 3"]);
        let shared = [begins(1, 0, 3, 10), line(1, 0, Event::Ends), begins(2, 0, 3, 10)];
        verdict(&shared, &["replica 1 led in term 3"]);
    }

    #[test]
    fn one_who_acts_on_a_cache_older_than_its_own_write_is_found() {
        let mut lines = good();
        lines[4] = begins(1, 1, 0, 10);
        verdict(&lines, &["it wrote at 11 before"]);
    }

    #[test]
    fn one_who_acts_on_what_it_never_began_is_found() {
        verdict(&[line(1, 0, Event::Acts)], &["it never began"]);
    }

    #[test]
    fn a_write_that_arrives_after_the_lease_has_changed_hands_is_found() {
        let leader = |replica: &str, term| Leader { replica: replica.to_owned(), term };
        let (first, second) = (leader("replica-1", 0), leader("replica-2", 1));
        let mut commits = vec![
            Commit::Lease(first.clone()),
            Commit::Ship(first.clone()),
            Commit::Lease(second.clone()),
            Commit::Ship(second),
        ];
        assert_eq!(judge_log(&commits), [] as [&str; 0]);
        commits.push(Commit::Ship(first));
        assert_eq!(judge_log(&commits).len(), 1);
        assert_eq!(judge_log(&commits[1..]).len(), 2, "a ship before there is a lease");
    }
}
