//! Looking at everything, and comparing it with the folded log.

use masthead_cache::{Cache, Config, Snapshot, SnapshotError};
use masthead_core::{Object, Revision, Time};
use masthead_sim::history;

use crate::readers::Reader;
use crate::script::KEYS;
use crate::world::{World, by_app, by_node};

impl World {
    /// At every revision of the window: state, indexes, and a cursor that reads from there.
    pub(crate) fn audit(&mut self, query: usize) -> Result<(), String> {
        let current = self.cache.revision().0;
        for rv in self.cache.oldest().0.saturating_sub(2)..=current + 1 {
            let snapshot = self.cache.snapshot_at(Revision(rv));
            let kept = rv >= self.cache.oldest().0;
            match snapshot {
                Ok(snapshot) if kept && rv <= current => self.compare(&snapshot)?,
                Err(SnapshotError::Expired { .. }) if !kept => {}
                Err(SnapshotError::Future { .. }) if rv > current => {}
                other => return Err(format!("snapshot at {rv}: {other:?}")),
            }
            if kept && rv <= current {
                Reader::compare_from(self, query, rv)?;
            }
        }
        for snapshot in std::mem::take(&mut self.held) {
            self.compare(&snapshot)?;
            self.held.push(snapshot);
        }
        self.check_memory()
    }

    fn compare(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        let rv = snapshot.revision().0;
        let expected = self.state_at(rv);
        let seen: Vec<Object> = snapshot.iter().collect();
        let listed: Vec<(String, u64)> =
            seen.iter().map(|object| (object.key().to_string(), object.revision().0)).collect();
        let sorted: Vec<(String, u64)> = expected.clone().into_iter().collect();
        if listed != sorted || snapshot.len() != expected.len() {
            return Err(format!("at {rv}: {listed:?} instead of {sorted:?}"));
        }
        for key in KEYS {
            let got = snapshot.get_str(key).map(|object| object.revision().0);
            if got != expected.get(key).copied() {
                return Err(format!("get {key} at {rv}: {got:?}"));
            }
        }
        for (index, value) in [
            ("label:app", "web"),
            ("label:app", "db"),
            ("field:spec.nodeName", "n1"),
            ("namespace", "a"),
            ("namespace", "ab"),
        ] {
            let Ok(found) = snapshot.by_index(index, value) else { continue };
            let mut items: Vec<(String, u64)> =
                found.map(|object| (object.key().to_string(), object.revision().0)).collect();
            items.sort();
            let both = snapshot.by_indexes(&[(index, value), ("label:app", "web")]);
            let mut both: Vec<String> =
                both.expect("known").map(|object| object.key().to_string()).collect();
            both.sort();
            let web = |key: &str| {
                self.log
                    .object_at(key, rv)
                    .is_some_and(|c| c.labels.get("app").is_some_and(|app| app == "web"))
            };
            let naive: Vec<String> =
                items.iter().map(|(key, _)| key.clone()).filter(|key| web(key)).collect();
            if both != naive {
                return Err(format!(
                    "at {rv} {index}={value} and web: {both:?} instead of {naive:?}"
                ));
            }
            let (index, value) = (index.to_owned(), value.to_owned());
            let t = self.now;
            self.record(history::IndexRead {
                iid: "cache".into(),
                t,
                index,
                value,
                items,
                cached: Some(listed.clone()),
            });
        }
        Ok(())
    }

    /// The books agree with what is there.
    fn check_memory(&self) -> Result<(), String> {
        let memory = self.cache.memory();
        let snapshot = self.cache.snapshot();
        let bodies: usize = snapshot.iter().map(|object| object.body_bytes()).sum();
        if (memory.objects, memory.bodies) != (snapshot.len(), bodies) {
            return Err(format!("{memory:?} but {} objects of {bodies} bytes", snapshot.len()));
        }
        Ok(())
    }

    /// An index that was changed all along costs what one built now costs.
    pub(crate) fn compare_index_bytes(&mut self) -> Result<(), String> {
        let before = self.cache.memory().indexes;
        let objects: Vec<Object> = self.cache.snapshot().iter().collect();
        let indexes = if self.added > 0 { vec![by_app(), by_node()] } else { vec![by_app()] };
        let (mut writer, cache) = Cache::new(Config { indexes, ..Config::default() });
        writer.replace(objects, Revision(self.revision), Time(0)).map_err(|e| e.to_string())?;
        let fresh = cache.memory();
        let now = self.cache.memory();
        if (fresh.indexes, fresh.heads) != (before, now.heads) {
            return Err(format!("{now:?} after all, {fresh:?} when built anew"));
        }
        Ok(())
    }
}
