//! Fuzz targets. Plain `cargo test` replays the corpus under `tests/__fuzz__/<target>/corpus`, damages
//! each seed at every byte and adds some random inputs; `cargo bolero test <target>` goes on from
//! there.

use masthead_core::{
    Bookmark, ContinueToken, EventType, FieldSelector, Frame, LabelSelector, ListPage, Object,
    Projection, Query, Resource, Revision, ShardSelector, Status, WatchLine,
};

/// Random inputs of one run, besides the corpus: all targets together stay below a second.
const ITERATIONS: usize = 1000;

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

fn label_selector(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(selector) = text.parse::<LabelSelector>() {
        assert_eq!(selector.to_string().parse(), Ok(selector));
    }
}

fn field_selector(input: &[u8]) {
    let pods = Resource::pods();
    if let Ok(selector) = FieldSelector::parse(&String::from_utf8_lossy(input), &pods) {
        assert_eq!(FieldSelector::parse(&selector.to_string(), &pods), Ok(selector));
    }
}

fn shard_selector(input: &[u8]) {
    if let Ok(selector) = ShardSelector::parse(&String::from_utf8_lossy(input)) {
        assert_eq!(ShardSelector::parse(&selector.to_string()), Ok(selector));
    }
}

fn token(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for namespace in ["", "shop"] {
        if let Ok(token) = ContinueToken::decode(&text, namespace) {
            assert!(namespace.is_empty() || token.start().starts_with("shop/"));
            assert!(token.start().split('/').all(|part| !matches!(part, "" | "." | "..")));
            assert_eq!(ContinueToken::decode(&token.encode(namespace), namespace), Ok(token));
        }
    }
}

fn query(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match Query::parse(&text, &Resource::pods(), "shop") {
        Ok(query) => assert_eq!(Query::is_watch(&text), matches!(query, Query::Watch(_))),
        Err(status) => assert!(matches!(status.code(), 400 | 422), "{status}"),
    }
}

fn object(input: &[u8]) {
    let pods = Resource::pods();
    let Ok(object) = Object::parse(&pods, input.to_vec().into()) else { return };
    assert!(is_json(input));
    let later = object.with_revision(Revision(1_234_567));
    let parsed = Object::parse(&pods, later.body().clone()).expect("splicing keeps it whole");
    assert_eq!((parsed.key(), parsed.revision()), (object.key(), Revision(1_234_567)));
    assert_eq!(parsed.metadata(), later.metadata());
    for projection in [Projection::Whole, Projection::Metadata] {
        let frame = Frame::event(EventType::Added, &object, Revision(9), projection);
        let line = frame.to_bytes();
        let split = WatchLine::split(&line).expect("what we write we read");
        assert!(is_json(&line[split.object]));
    }
    let item = Object::from_list_item(&pods, input).expect("a whole object is also an item");
    assert_eq!(item.key(), object.key());
}

fn list_page(input: &[u8]) {
    if let Ok(page) = ListPage::split(input) {
        assert!(is_json(input));
        assert!(page.items.into_iter().all(|item| is_json(&input[item])));
    }
}

fn watch_line(input: &[u8]) {
    if let Ok(line) = WatchLine::split(input) {
        assert!(is_json(input) && is_json(&input[line.object.clone()]));
        let _ = (Bookmark::parse(&input[line.object.clone()]), Status::parse(&input[line.object]));
    }
}

fn status(input: &[u8]) {
    let status = Status::of_response(500, input);
    assert_eq!(Status::parse(status.to_json().as_bytes()), Some(status));
}

macro_rules! targets {
    ($($test:ident: $target:ident,)+) => {
        $(#[test]
        fn $test() {
            bolero::check!().with_iterations(ITERATIONS).for_each(|input: &[u8]| $target(input));
        })+

        const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($target), $target),)+];
    };
}

targets! {
    fuzz_label_selector: label_selector,
    fuzz_field_selector: field_selector,
    fuzz_shard_selector: shard_selector,
    fuzz_token: token,
    fuzz_query: query,
    fuzz_object: object,
    fuzz_list_page: list_page,
    fuzz_watch_line: watch_line,
    fuzz_status: status,
}

/// Every seed cut at every byte, without every byte, and with every byte replaced by each of those
/// that mean something somewhere.
#[test]
fn damaged_seeds_break_nothing() {
    for (target, check) in TARGETS {
        let path = format!("{}/tests/__fuzz__/{target}/corpus", env!("CARGO_MANIFEST_DIR"));
        let seeds: Vec<_> = std::fs::read_dir(path).expect("a corpus").collect();
        assert!(seeds.len() >= 5, "{target} has {} seeds", seeds.len());
        for seed in seeds {
            let seed = std::fs::read(seed.expect("readable").path()).expect("readable");
            for at in 0..seed.len() {
                check(&seed[..at]);
                check(&[&seed[..at], &seed[at + 1..]].concat());
                for byte in *b"\0\"\\{}[],:=!%/.0a\xff " {
                    let mut damaged = seed.clone();
                    damaged[at] = byte;
                    check(&damaged);
                }
            }
        }
    }
}
