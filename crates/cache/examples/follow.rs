//! A handler that is slow, one that is selective, and a snapshot that stays what it was.
//!
//! `cargo run -p masthead-cache --example follow`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use masthead_cache::{Batch, Cache, Config, Cursor, From, Gaps, Interest};
use masthead_core::{LabelSelector, Mutation, Object, Resource, Revision, Selectors, Time};

fn pod(name: &str, app: &str, rv: u64) -> Result<Object, Box<dyn Error>> {
    let body = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"shop","uid":"{name}","resourceVersion":"{rv}","labels":{{"app":"{app}"}}}}}}"#
    );
    Ok(Object::parse(&Resource::pods(), body.into())?)
}

fn show(who: &str, cursor: &mut Cursor) -> Result<(), Box<dyn Error>> {
    let mut batch = Batch::default();
    while cursor.try_read(&mut batch, 100)? {
        for event in &batch.events {
            println!("{who}: {} {:?}", event.kind.as_str(), event.object);
        }
        if let Some(revision) = batch.initial_end {
            println!("{who}: has the state at {revision}");
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut writer, cache) = Cache::new(Config::default());
    writer.replace(vec![pod("a", "web", 1)?, pod("b", "db", 2)?], Revision(2), Time(0))?;

    let labels = LabelSelector::parse("app=web")?;
    let web = Interest::all().with(Selectors { labels, ..Selectors::default() });
    let mut everything = cache.subscribe(Interest::all(), From::State, Gaps::Bridge)?;
    let mut only_web = cache.subscribe(web, From::After(Revision(2)), Gaps::End)?;
    let before = cache.snapshot();

    for (revision, object) in [(3, pod("b", "web", 3)?), (4, pod("b", "db", 4)?)] {
        writer.apply([Mutation::Put { revision: Revision(revision), object }], Time(0));
    }
    show("all", &mut everything)?;
    show("web", &mut only_web)?;
    println!("then: {:?}, now: {:?}", before.get_str("shop/b"), cache.snapshot().get_str("shop/b"));
    Ok(())
}
