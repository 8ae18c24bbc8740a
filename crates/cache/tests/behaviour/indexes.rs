//! Indexes: their functions, limits and look-ups.

use masthead_cache::limits::{INDEX_VALUE_BYTES_MAX, INDEX_VALUES_MAX, INDEXES_MAX};
use masthead_cache::{AddIndexError, Cache, Config, Index, IndexError};
use masthead_core::{Labels, Object, Revision, Time};

use crate::{pod, put};

fn names(found: impl Iterator<Item = Object>) -> Vec<String> {
    let mut names: Vec<String> = found.map(|object| object.key().name().to_owned()).collect();
    names.sort();
    names
}

fn filled(index: Index) -> Cache {
    let (mut writer, cache) = Cache::new(Config { indexes: vec![index], ..Config::default() });
    let pods = vec![pod("a", r#""app":"web""#, 1), pod("b", r#""app":"boom""#, 2)];
    writer.replace(pods, Revision(3), Time(0)).unwrap();
    writer.apply([put(pod("c", r#""app":"web""#, 4))], Time(0));
    cache
}

#[test]
fn a_panicking_index_function_leaves_out_only_that_object() {
    let cache = filled(Index::new("app", |object, values| {
        let app = object.label("app").unwrap();
        assert_ne!(app, "boom", "planted");
        values.push(app);
        Ok(())
    }));
    assert_eq!(names(cache.snapshot().by_index("app", "web").unwrap()), ["a", "c"]);
    assert_eq!(names(cache.snapshot().by_index("app", "boom").unwrap()), [""; 0]);
    assert_eq!(cache.index_failures("app"), Some(1));
    assert_eq!(cache.snapshot().len(), 3);
}

#[test]
fn a_failing_index_function_keeps_no_half_of_its_values() {
    let cache = filled(Index::new("app", |object, values| {
        values.push(object.label("app").unwrap());
        if object.label("app") == Some("boom") {
            return Err(IndexError("planted".into()));
        }
        Ok(())
    }));
    assert_eq!(names(cache.snapshot().by_index("app", "boom").unwrap()), [""; 0]);
    assert_eq!(cache.index_failures("app"), Some(1));
    assert_eq!(cache.index_failures("none"), None);
}

#[test]
fn an_object_stands_under_each_of_its_values_once() {
    let cache = filled(Index::new("letters", |object, values| {
        values.extend(["x", object.key().name(), "x"]);
        Ok(())
    }));
    assert_eq!(names(cache.snapshot().by_index("letters", "x").unwrap()), ["a", "b", "c"]);
    assert_eq!(names(cache.snapshot().by_index("letters", "b").unwrap()), ["b"]);
    let both = cache.snapshot();
    let both = both.by_indexes(&[("letters", "x"), ("letters", "c"), ("namespace", "ns")]).unwrap();
    assert_eq!(names(both), ["c"]);
}

#[test]
fn numbers_and_lengths_of_values_hold_at_the_limit_and_break_above_it() {
    let many = |n: usize| {
        filled(Index::new("many", move |_, values| {
            (0..n).for_each(|value| values.push(&value.to_string()));
            Ok(())
        }))
    };
    let last = (INDEX_VALUES_MAX - 1).to_string();
    assert_eq!(many(INDEX_VALUES_MAX).snapshot().by_index("many", &last).unwrap().count(), 3);
    assert_eq!(many(INDEX_VALUES_MAX + 1).index_failures("many"), Some(3));
    let long = |n: usize| {
        filled(Index::new("long", move |_, values| {
            values.push(&"v".repeat(n));
            Ok(())
        }))
    };
    assert_eq!(long(INDEX_VALUE_BYTES_MAX).index_failures("long"), Some(0));
    assert_eq!(long(INDEX_VALUE_BYTES_MAX + 1).index_failures("long"), Some(3));
}

#[test]
fn an_index_added_while_running_is_whole_and_old_snapshots_do_not_have_it() {
    let cache = filled(Index::owner());
    let before = cache.snapshot();
    cache
        .add_index(Index::new("app", |object, values| {
            values.extend(object.label("app"));
            Ok(())
        }))
        .unwrap();
    assert_eq!(names(cache.snapshot().by_index("app", "web").unwrap()), ["a", "c"]);
    assert_eq!(
        names(cache.snapshot_at(Revision(3)).unwrap().by_index("app", "web").unwrap()),
        ["a"]
    );
    let unknown = before.by_index("app", "web").err().unwrap();
    assert_eq!(unknown.to_string(), r#"no index named "app"; there are: namespace, owner"#);
}

#[test]
fn there_are_as_many_indexes_as_allowed_and_not_one_more() {
    let (_writer, cache) = Cache::new(Config { indexes: Vec::new(), ..Config::default() });
    for number in 0..INDEXES_MAX {
        cache.add_index(Index::new(&number.to_string(), |_, _| Ok(()))).unwrap();
    }
    let more = cache.add_index(Index::new("more", |_, _| Ok(())));
    assert_eq!(more, Err(AddIndexError::TooMany));
    let twice = cache.add_index(Index::new("0", |_, _| Ok(())));
    assert_eq!(twice, Err(AddIndexError::Exists("0".into())));
}
