//! Lists in pages, as a server answers them.

use masthead_cache::{Query, SnapshotError};
use masthead_core::{ContinueToken, Object, Revision};
use masthead_sim::history::{self, ListResp, Match};

use crate::script::{KEYS, State, queries};
use crate::world::{World, item};

impl World {
    /// A list in pages; a write reaches the cache between them.
    pub(crate) fn list(&mut self, back: Option<u64>, query: usize, limit: usize) {
        let (scope, labels, fields) = queries()[query].clone();
        let namespace = match &scope {
            history::Scope::Namespace(namespace) => Some(namespace.clone()),
            history::Scope::All => None,
            history::Scope::Name(_) => return,
        };
        let selectors = self.selectors(labels, fields);
        let rv = back.map(|back| self.applied.saturating_sub(back).max(1));
        let mut token: Option<String> = None;
        loop {
            self.lists += 1;
            let id = format!("l{}", self.lists);
            let (oldest, snapshot) = match (&token, rv) {
                (Some(token), _) => {
                    let token =
                        ContinueToken::decode(token, namespace.as_deref().unwrap_or_default())
                            .expect("our own");
                    (
                        Some(token.start().to_owned()),
                        self.cache.snapshot_at(token.revision().expect("fixed")),
                    )
                }
                (None, Some(rv)) => (None, self.cache.snapshot_at(Revision(rv))),
                (None, None) => (None, Ok(self.cache.snapshot())),
            };
            let start = oldest;
            self.record(history::List {
                id: id.clone(),
                who: "lister".into(),
                scope: scope.clone(),
                selector: labels.into(),
                fields: fields.into(),
                rv: rv.filter(|_| token.is_none()),
                matching: rv.filter(|_| token.is_none()).map(|_| Match::Exact),
                limit: limit as u64,
                token: token.take(),
                t0: self.now,
            });
            let mut answer = ListResp {
                id,
                code: 200,
                reason: String::new(),
                rv: 0,
                items: Vec::new(),
                token: None,
                retry_after_ms: None,
                injected: false,
                t1: self.now,
            };
            match snapshot {
                Err(SnapshotError::Expired { .. }) => answer.code = 410,
                Err(SnapshotError::Future { .. }) => answer.code = 504,
                Err(other) => panic!("{other}"),
                Ok(snapshot) => {
                    answer.rv = snapshot.revision().0;
                    let query = Query {
                        namespace: namespace.as_deref(),
                        start: start.as_deref(),
                        selectors: Some(&selectors),
                    };
                    let page = if limit == 0 { usize::MAX } else { limit };
                    let found: Vec<Object> = snapshot.list(query).take(page).collect();
                    answer.items = found.iter().map(item).collect();
                    if let Some(last) = found.last().filter(|_| found.len() == page) {
                        let next = ContinueToken::after(last.key(), Some(snapshot.revision()));
                        answer.token = Some(next.encode(namespace.as_deref().unwrap_or_default()));
                    }
                }
            }
            token.clone_from(&answer.token);
            self.record(answer);
            if token.is_none() {
                return;
            }
            self.now += 1;
            let state = State { app: Some("web"), tier: None, node: Some("n1"), recreate: false };
            let to = (!self.lists.is_multiple_of(3)).then_some(&state);
            self.write(KEYS[self.lists % KEYS.len()], to);
            self.apply();
        }
    }
}
