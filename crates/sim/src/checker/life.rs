//! An informer's records, cut where it was started again.

use super::case::InformerLines;
use crate::history::{Informer, Record};
use crate::model::Query;

/// What happened between two starts.
pub(super) struct Life<'a> {
    generation: u64,
    pub query: Query,
    /// The mark that the life before left behind.
    pub saved: Option<u64>,
    /// When it began, if it said so.
    pub began: u64,
    /// When it was over; `u64::MAX` if it went on.
    pub over: u64,
    pub lines: Vec<(usize, &'a Record)>,
}

impl Life<'_> {
    fn new(generation: u64) -> Self {
        let query = Query::default();
        Self { generation, query, saved: None, began: 0, over: u64::MAX, lines: Vec::new() }
    }

    fn born(born: &Informer) -> Self {
        // An informer with a selector that does not parse gets no answers: nothing to judge.
        let query = Query::new(born.scope.clone(), &born.selector, &born.fields);
        let life = Self::new(born.generation);
        Self { query: query.unwrap_or_default(), saved: born.saved, began: born.t, ..life }
    }
}

/// The lives of an informer, in order. Cache changes of a life that is over are left out.
pub(super) fn lives<'a>(informer: &InformerLines<'a>) -> Vec<Life<'a>> {
    let mut lives = Vec::<Life<'a>>::new();
    for (line, record) in &informer.lines {
        let next = match record {
            Record::Informer(born) => Some(Life::born(born)),
            Record::Cache(change) => match lives.last() {
                Some(life) if change.generation < life.generation => continue,
                Some(life) if change.generation == life.generation => None,
                _ => Some(Life { began: change.t, ..Life::new(change.generation) }),
            },
            _ if lives.is_empty() => Some(Life::new(0)),
            _ => None,
        };
        if let Some(next) = next {
            if let Some(last) = lives.last_mut() {
                last.over = last.over.min(next.began);
            }
            lives.push(next);
        }
        let Some(life) = lives.last_mut() else { continue };
        if let Record::Stopped(stopped) = record {
            life.over = life.over.min(stopped.t);
        }
        life.lines.push((*line, record));
    }
    lives
}
