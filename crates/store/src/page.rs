//! Pages of ranges, filled the same way by every store.

use masthead_core::ObjectKey;

use crate::limits::{RANGE_BYTES_MAX, RANGE_VALUES_MAX};
use crate::{RangePage, StoreError, Value};

/// Takes objects in the order of their keys until the page is full.
pub(crate) struct PageBuilder {
    values: Vec<Value>,
    last: Option<ObjectKey>,
    limit: usize,
    bytes: usize,
    full: bool,
}

impl PageBuilder {
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.clamp(1, RANGE_VALUES_MAX);
        Self { values: Vec::new(), last: None, limit, bytes: 0, full: false }
    }

    /// Takes the next object, whose value is asked for only if it fits. Says whether to go on.
    pub(crate) fn push(
        &mut self,
        key: ObjectKey,
        body_bytes: usize,
        value: impl FnOnce() -> Result<Value, StoreError>,
    ) -> Result<bool, StoreError> {
        let fits = self.bytes + body_bytes <= RANGE_BYTES_MAX || self.values.is_empty();
        self.full = self.values.len() == self.limit || !fits;
        if !self.full {
            self.values.push(value()?);
            self.bytes += body_bytes;
            self.last = Some(key);
        }
        Ok(!self.full)
    }

    pub(crate) fn finish(self) -> RangePage {
        RangePage { values: self.values, next: self.last.filter(|_| self.full) }
    }
}

#[cfg(test)]
mod tests {
    use masthead_core::Revision;

    use super::*;

    fn fill(limit: usize, count: usize, bytes: usize) -> RangePage {
        let mut page = PageBuilder::new(limit);
        for at in 0..count {
            let key = ObjectKey::new("shop", &format!("n{at}")).expect("a valid key");
            let value = Value::stored(Revision(1), bytes::Bytes::new());
            if !page.push(key, bytes, || Ok(value)).expect("it has its value") {
                break;
            }
        }
        page.finish()
    }

    #[test]
    fn a_page_ends_at_its_limit_and_knows_whether_there_is_more() {
        let page = fill(3, 3, 1);
        assert_eq!((page.values.len(), page.more()), (3, false));
        let page = fill(3, 4, 1);
        assert_eq!(
            (page.values.len(), page.next.map(|key| key.to_string())),
            (3, Some("shop/n2".into()))
        );
        assert_eq!(fill(0, 2, 1).values.len(), 1, "a page moves on");
    }

    #[test]
    fn no_page_is_larger_than_the_limits() {
        assert_eq!(fill(usize::MAX, RANGE_VALUES_MAX + 1, 0).values.len(), RANGE_VALUES_MAX);
        assert_eq!(fill(10, 3, RANGE_BYTES_MAX / 2).values.len(), 2);
        assert_eq!(fill(10, 3, RANGE_BYTES_MAX / 2 + 1).values.len(), 1);
        assert_eq!(fill(10, 3, RANGE_BYTES_MAX + 1).values.len(), 1, "a page moves on");
    }
}
