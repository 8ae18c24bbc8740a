//! Shard selectors (W28).

use masthead_core::{FieldSelector, LabelSelector, Object, Resource, Selectors, ShardSelector};
use proptest::prelude::*;

use crate::fixture;

#[test]
fn w28_selectors_read_as_in_kubernetes() {
    fixture::run("shard_selectors.txt", |_, input| match ShardSelector::parse(input) {
        Ok(selector) if selector.is_everything() => "everything".to_owned(),
        Ok(selector) => {
            assert_eq!(selector.to_string().parse(), Ok(selector.clone()), "{input}");
            selector.to_string()
        }
        Err(error) => format!("error: {error}"),
    });
}

#[test]
fn an_object_must_match_every_selector() {
    let body = r#"{"metadata":{"name":"web","namespace":"shop","uid":"a","labels":{"app":"web"}}}"#;
    let pod = Object::parse(&Resource::pods(), body.into()).unwrap();
    let selectors = |labels: &str, fields: &str, shard: &str| Selectors {
        labels: LabelSelector::parse(labels).unwrap(),
        fields: FieldSelector::parse(fields, &Resource::pods()).unwrap(),
        shard: ShardSelector::parse(shard).unwrap(),
    };
    let upper = "shardRange(object.metadata.uid,'0x8000000000000000','0x10000000000000000')";
    let lower = "shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')";
    let all = selectors("app=web", "metadata.name=web", upper);
    assert!(all.matches(&pod) && !all.is_everything() && all.heap_bytes() > 0);
    assert!(!selectors("app=api", "metadata.name=web", upper).matches(&pod));
    assert!(!selectors("app=web", "metadata.name=api", upper).matches(&pod));
    assert!(!selectors("app=web", "metadata.name=web", lower).matches(&pod));
    assert!(Selectors::default().matches(&pod) && Selectors::default().is_everything());
}

#[test]
fn a_namespace_is_wholly_in_one_shard() {
    let lower = "shardRange(object.metadata.namespace, '0x0', '0x8000000000000000')";
    let lower = ShardSelector::parse(lower).unwrap();
    let matches = |name: &str, uid: &str| {
        let body =
            format!(r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"{uid}"}}}}"#);
        lower.matches(&Object::parse(&Resource::pods(), body.into()).unwrap())
    };
    let first = matches("a", "0");
    assert!((0..100).all(|i| matches(&format!("n{i}"), &format!("u{i}")) == first));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Merged ranges hold what the separate ones held.
    #[test]
    fn ranges_agree_with_a_naive_matcher(
        ranges in prop::collection::vec((0..16_u128, 1..8_u128), 1..5),
        uid in "[a-z0-9]{0,8}",
    ) {
        // Sixteenths of the hashes, so that ranges touch and overlap often.
        let bounds = |(start, len): (u128, u128)| (start << 60, (start + len).min(16) << 60);
        let ranges: Vec<_> = ranges.into_iter().map(bounds).collect();
        let term = |&(start, end): &(u128, u128)| {
            format!("shardRange(object.metadata.uid, '0x{start:016x}', '0x{end:016x}')")
        };
        let text = ranges.iter().map(term).collect::<Vec<_>>().join("||");
        let selector: ShardSelector = text.parse().unwrap();
        prop_assert_eq!(selector.to_string().parse(), Ok(selector.clone()));
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in uid.bytes() {
            hash ^= u64::from(byte);
            hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
        }
        let expected = ranges.iter().any(|&(start, end)| (start..end).contains(&u128::from(hash)));
        prop_assert_eq!(selector.matches_text(&uid), expected);
    }
}
