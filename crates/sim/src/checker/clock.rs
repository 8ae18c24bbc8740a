//! Deadlines that wait for faults to end.

use std::collections::BTreeMap;

use crate::history::Fault;

/// When which faults were on.
#[derive(Default)]
pub(super) struct Clock<'a> {
    /// By the one who is hit; `None` is everybody. Sorted and disjoint.
    windows: BTreeMap<Option<&'a str>, Vec<Window>>,
    /// The windows of stalled readers, by reader.
    pub stalls: BTreeMap<&'a str, Vec<Window>>,
    /// The last time in the history.
    pub end: u64,
}

/// A span of time with both ends in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Window {
    pub from: u64,
    pub to: u64,
}

impl Window {
    pub(super) fn holds(&self, t: u64) -> bool {
        (self.from..=self.to).contains(&t)
    }
}

impl<'a> Clock<'a> {
    pub(super) fn new(faults: impl Iterator<Item = &'a Fault>, end: u64) -> Self {
        let mut clock = Self { end, ..Self::default() };
        let mut open = BTreeMap::new();
        for fault in faults {
            let name = (fault.kind.as_str(), fault.target.as_deref());
            if fault.on {
                open.entry(name).or_insert(fault.t);
            } else if let Some(from) = open.remove(&name) {
                clock.add(name, Window { from, to: fault.t });
            }
        }
        for (name, from) in open {
            clock.add(name, Window { from, to: u64::MAX });
        }
        clock.windows.values_mut().for_each(merge);
        clock.stalls.values_mut().for_each(merge);
        clock
    }

    fn add(&mut self, (kind, target): (&'a str, Option<&'a str>), window: Window) {
        self.windows.entry(target).or_default().push(window);
        if let (Some(target), true) = (target, kind.starts_with("stall")) {
            self.stalls.entry(target).or_default().push(window);
        }
    }

    /// When something that takes `budget` without faults must be done at the latest, if it could
    /// begin at `start`: a fault in between makes it begin again at the fault's end.
    /// `names` are those of the one who has to do it.
    pub(super) fn deadline(&self, start: u64, budget: u64, names: &[&str]) -> u64 {
        let mut begin = start;
        loop {
            let limit = begin.saturating_add(budget);
            let hit = self.lists(names).filter_map(|list| {
                let next = list.partition_point(|window| window.to <= begin);
                list.get(next).filter(|window| window.from < limit)
            });
            match hit.map(|window| window.to).max() {
                Some(to) => begin = to,
                None => return limit,
            }
        }
    }

    /// Whether the deadline for the same lies before the end of the history, and if so where.
    pub(super) fn due(&self, start: u64, budget: u64, names: &[&str]) -> Option<u64> {
        Some(self.deadline(start, budget, names)).filter(|deadline| *deadline < self.end)
    }

    /// The first moment from `t` on at which a fault is on.
    pub(super) fn next_fault(&self, t: u64, names: &[&str]) -> u64 {
        let firsts = self.lists(names).filter_map(|list| {
            let next = list.partition_point(|window| window.to < t);
            list.get(next).map(|window| window.from.max(t))
        });
        firsts.min().unwrap_or(u64::MAX)
    }

    /// No fault at all is on at `t`, whoever it hits.
    pub(super) fn calm(&self, t: u64) -> bool {
        !self.windows.values().any(|list| holding(list, t))
    }

    /// A fault is on at `t` that hits everybody or one of `names`.
    pub(super) fn faulty(&self, t: u64, names: &[&str]) -> bool {
        self.lists(names).any(|list| holding(list, t))
    }

    fn lists<'b>(&'b self, names: &'b [&str]) -> impl Iterator<Item = &'b Vec<Window>> {
        let own = names.iter().filter_map(|name| self.windows.get(&Some(*name)));
        self.windows.get(&None).into_iter().chain(own)
    }
}

/// Whether one of the sorted windows holds `t`.
pub(super) fn holding(windows: &[Window], t: u64) -> bool {
    let next = windows.partition_point(|window| window.to < t);
    windows.get(next).is_some_and(|window| window.holds(t))
}

fn merge(windows: &mut Vec<Window>) {
    windows.sort();
    windows.dedup_by(|later, earlier| {
        let touch = later.from <= earlier.to;
        if touch {
            earlier.to = earlier.to.max(later.to);
        }
        touch
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(t: u64, on: bool, target: Option<&str>) -> Fault {
        Fault { t, kind: "loss".into(), on, target: target.map(Into::into) }
    }

    #[test]
    fn a_deadline_begins_again_after_each_fault_that_hits() {
        let faults = [
            fault(10, true, None),
            fault(20, false, None),
            fault(24, true, Some("me")),
            fault(25, false, Some("me")),
        ];
        let clock = Clock::new(faults.iter(), 100);
        assert_eq!(clock.deadline(0, 5, &["me"]), 5);
        assert_eq!(clock.deadline(6, 5, &["you"]), 25);
        assert_eq!(clock.deadline(6, 5, &["me"]), 30);
        assert_eq!(clock.next_fault(21, &["me"]), 24);
        assert_eq!(clock.next_fault(26, &["me"]), u64::MAX);
    }

    #[test]
    fn faults_that_overlap_count_until_the_last_of_them_ends() {
        let named = |kind: &str, fault: Fault| Fault { kind: kind.into(), ..fault };
        let faults = [
            named("loss", fault(10, true, None)),
            named("delay", fault(12, true, None)),
            named("delay", fault(14, false, None)),
            named("loss", fault(30, false, None)),
            named("reset", fault(13, true, Some("me"))),
            named("reset", fault(40, false, Some("me"))),
        ];
        let clock = Clock::new(faults.iter(), 100);
        assert_eq!(clock.deadline(10, 5, &["you"]), 35);
        assert_eq!(clock.deadline(10, 5, &["me"]), 45);
        assert_eq!(clock.next_fault(0, &["me"]), 10);
        assert!(clock.faulty(40, &["me"]) && !clock.faulty(40, &["you"]) && !clock.calm(40));
        assert!(clock.calm(41) && clock.calm(9));
        assert_eq!(clock.due(10, 70, &["you"]), None, "100 is the end, nothing is known after it");
        assert_eq!(clock.due(10, 69, &["you"]), Some(99));
    }

    #[test]
    fn a_fault_that_never_ends_puts_the_deadline_off_for_ever() {
        let faults = [fault(10, true, None)];
        let clock = Clock::new(faults.iter(), 100);
        assert_eq!(clock.deadline(6, 5, &[]), u64::MAX);
        assert_eq!(clock.due(6, 5, &[]), None);
    }
}
