//! L1, L2, L3: lists and their pages.

use std::collections::{BTreeMap, BTreeSet};

use super::case::{Asked, Case, Listing};
use super::{Findings, Rule};
use crate::history::{Item, List, ListResp, Match};
use crate::model::{Log, Query};

/// An answer that a later page may continue.
struct Page<'a> {
    line: usize,
    epoch: usize,
    list: &'a List,
    answer: &'a ListResp,
    /// The page whose token this one carried.
    parent: Option<usize>,
    continued: bool,
}

pub(super) fn check(case: &Case<'_>, findings: &mut Findings) {
    let pages = pages(case);
    for (place, page) in pages.iter().enumerate() {
        if page.answer.code != 200 || page.answer.injected {
            continue;
        }
        let log = case.log(page.epoch);
        let query = match query_of(page.list) {
            Ok(query) => query,
            Err(text) => {
                findings.add(Rule::L1, page.line, &page.list.id, text);
                continue;
            }
        };
        items_are_of_one_state(log, &query, page, findings);
        if page.list.token.is_none() {
            fresh(case, page, findings);
        }
        same_revision(&pages, page, findings);
        if !page.continued {
            whole(log, &query, &chain(&pages, place), findings);
        }
    }
}

pub(super) fn query_of(list: &List) -> Result<Query, String> {
    Query::new(list.scope.clone(), &list.selector, &list.fields)
}

/// Links each page to the answer that gave out its token.
fn pages<'a>(case: &Case<'a>) -> Vec<Page<'a>> {
    let mut answered: Vec<_> = case
        .lists
        .iter()
        .filter_map(|listing| listing.answer.map(|(line, answer)| (line, answer, listing)))
        .collect();
    answered.sort_unstable_by_key(|(line, ..)| *line);
    let mut tokens = BTreeMap::<(Asked<'_>, &str), usize>::new();
    let mut pages = Vec::<Page<'_>>::new();
    for (line, answer, listing) in answered {
        let Listing { epoch, list, .. } = *listing;
        let sent = list.token.as_deref();
        let parent = sent.and_then(|token| tokens.get(&(listing.asked(), token)).copied());
        if let (Some(parent), 200 | 410) = (parent, answer.code) {
            pages[parent].continued = true;
        }
        if let Some(token) = &answer.token {
            tokens.insert((listing.asked(), token), pages.len());
        }
        pages.push(Page { line, epoch, list, answer, parent, continued: false });
    }
    pages
}

/// The pages of a list from the first to `last`. Empty if the first is not in the history, or if
/// the list went on at a newer revision after a 410: such a list is not whole, and need not be.
fn chain<'a, 'b>(pages: &'b [Page<'a>], last: usize) -> Vec<&'b Page<'a>> {
    let mut chain = vec![&pages[last]];
    while let Some(page) = chain.last() {
        match page.parent {
            Some(parent) if pages[parent].answer.code == 200 => chain.push(&pages[parent]),
            None if page.list.token.is_none() => break,
            _ => return Vec::new(),
        }
    }
    chain.reverse();
    chain
}

/// L1: each item is what its key was at the list's revision, and selected.
fn items_are_of_one_state(log: &Log, query: &Query, page: &Page<'_>, findings: &mut Findings) {
    let rv = page.answer.rv;
    let mut seen = BTreeSet::new();
    for item in &page.answer.items {
        let key = &item.key;
        let text = match log.object_at(key, rv) {
            None => format!("{key} does not exist at revision {rv}"),
            Some(object) if !query.selects(object) => format!("{key} is not asked for at {rv}"),
            Some(object)
                if (&object.uid, object.rv, object.hash) != (&item.uid, item.rv, item.hash) =>
            {
                format!("{key} is another version at revision {rv}")
            }
            Some(_) if !seen.insert(key) => format!("{key} is there twice"),
            Some(_) => continue,
        };
        findings.add(Rule::L1, page.line, &page.list.id, text);
    }
}

/// L2: the revision is the one, or as new as the one, that was asked for.
fn fresh(case: &Case<'_>, page: &Page<'_>, findings: &mut Findings) {
    let List { rv: asked, matching, limit, t0, .. } = page.list;
    let rv = page.answer.rv;
    let wrong = match (*asked, matching) {
        (Some(0), _) => None,
        (None, _) => {
            let least = case.acknowledged_before(page.epoch, *t0);
            (rv < least).then(|| format!("{least} was acknowledged before"))
        }
        (Some(asked), Some(Match::Exact)) => (rv != asked).then(|| format!("not exactly {asked}")),
        // The old way of asking for an exact list: a revision, a limit, and no word about it.
        (Some(asked), None) if *limit > 0 => (rv != asked).then(|| format!("not exactly {asked}")),
        (Some(asked), _) => (rv < asked).then(|| format!("older than {asked}")),
    };
    if let Some(wrong) = wrong {
        findings.add(Rule::L2, page.line, &page.list.id, format!("the list is of {rv}: {wrong}"));
    }
}

/// L3: a page has the revision of the page before, unless that one was a 410 with a new token.
fn same_revision(pages: &[Page<'_>], page: &Page<'_>, findings: &mut Findings) {
    let Some(parent) = page.parent.map(|parent| pages[parent].answer) else { return };
    if parent.code == 200 && !parent.injected && parent.rv != page.answer.rv {
        let text = format!("a page of revision {} after one of {}", page.answer.rv, parent.rv);
        findings.add(Rule::L3, page.line, &page.list.id, text);
    }
}

/// L3, and L1 for a list of one page: no key twice, and at the end none is missing.
fn whole(log: &Log, query: &Query, chain: &[&Page<'_>], findings: &mut Findings) {
    let Some(last) = chain.last() else { return };
    if chain.iter().any(|page| page.answer.injected) {
        return;
    }
    let mut keys = BTreeSet::new();
    for page in chain {
        let before = keys.len();
        let own: BTreeSet<_> = page.answer.items.iter().map(|item| item.key.as_str()).collect();
        let count = own.len();
        keys.extend(own);
        if keys.len() < before + count {
            findings.add(Rule::L3, page.line, &page.list.id, "a key of an earlier page again");
        }
    }
    let one_revision = chain.iter().all(|page| page.answer.rv == last.answer.rv);
    if last.answer.token.is_some() || !one_revision {
        return;
    }
    let rv = last.answer.rv;
    if let Some(key) = log.select(query, rv).into_keys().find(|key| !keys.contains(key)) {
        let rule = if chain.len() == 1 { Rule::L1 } else { Rule::L3 };
        findings.add(rule, last.line, &last.list.id, format!("{key} is missing at revision {rv}"));
    }
}

/// A list that was read to its end at one revision.
pub(super) struct Whole<'a> {
    /// The line of its last answer.
    pub line: usize,
    pub epoch: usize,
    pub list: &'a List,
    pub rv: u64,
    pub items: Vec<&'a Item>,
}

/// All lists that were read to their end.
pub(super) fn whole_lists<'a>(case: &Case<'a>) -> Vec<Whole<'a>> {
    let pages = pages(case);
    let ends = pages.iter().enumerate().filter(|(_, page)| {
        page.answer.code == 200 && page.answer.token.is_none() && !page.answer.injected
    });
    ends.filter_map(|(place, page)| {
        let chain = chain(&pages, place);
        let rv = page.answer.rv;
        let usable = |page: &&Page<'_>| page.answer.rv == rv && !page.answer.injected;
        if chain.is_empty() || !chain.iter().all(usable) {
            return None;
        }
        let items = chain.iter().flat_map(|page| &page.answer.items).collect();
        Some(Whole { line: page.line, epoch: page.epoch, list: page.list, rv, items })
    })
    .collect()
}
