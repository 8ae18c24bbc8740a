//! A disk that takes no more.

use masthead_core::Revision;
use masthead_store::{EmbeddedStore, Health, Store};

use crate::child::{Acknowledged, block_on, lines, settings, start, write};
use crate::crash::Witness;

#[test]
fn when_a_file_may_not_grow_the_store_is_read_only_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    drop(EmbeddedStore::open(dir.path(), settings()).unwrap());
    // 16 blocks are 8 or 16 KiB, less than a file of the log would get. The signal would be the end.
    let mut child = start(dir.path(), 0, "trap '' XFSZ; ulimit -f 16;");
    let heard: Vec<_> = lines(&mut child).collect();
    assert!(child.wait().unwrap().success(), "{heard:?}");
    let refusals = heard.iter().filter(|line| line.starts_with("refused the store is read-only"));
    assert_eq!(refusals.count(), crate::child::WRITERS, "{heard:?}");
    assert!(heard.iter().any(|line| line.starts_with("health ReadOnly")), "{heard:?}");
    assert!(heard.iter().any(|line| line == "readable true"), "{heard:?}");
    let acknowledged: Vec<_> =
        heard.iter().filter_map(|line| Acknowledged::from_line(line)).collect();
    assert!(!acknowledged.is_empty());

    let mut witness = Witness::default();
    witness.hear(0, &acknowledged);
    witness.check(dir.path(), 0, &acknowledged);
    let store = EmbeddedStore::open(dir.path(), settings()).unwrap();
    assert_eq!(store.health(), Health::Writable);
    let current = block_on(store.current()).unwrap();
    let result = block_on(store.commit(vec![write(1, 0, 0)])).remove(0).unwrap();
    assert_eq!(result.revision, Revision(current.0 + 1));
}
