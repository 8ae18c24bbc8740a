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
