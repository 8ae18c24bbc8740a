//! How a reflector is set up.

use std::time::Duration;

use crate::backoff::Pace;
use crate::limits;

/// How a list is read where the server lets us choose (R2).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Strategy {
    /// As a watch that begins with the state; in pages where the server does not have that.
    #[default]
    Streaming,
    /// In pages.
    Pages,
}

/// How new the very first list must be (R1). Every later one is consistent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum FirstList {
    /// Nothing that was acknowledged before the request may be missing.
    #[default]
    Consistent,
    /// Whatever a server has cached: cheap for very large fleets, and possibly older than what an
    /// earlier run of this program saw.
    Cached,
}

/// All numbers of a reflector. The default is right for a Kubernetes API server.
///
/// ```
/// use masthead_reflector::{Settings, Strategy};
///
/// let settings = Settings { strategy: Strategy::Pages, ..Settings::default() };
/// assert!(settings.validate().is_ok());
/// let wrong = Settings { page_objects: 5, ..settings };
/// let error = wrong.validate().unwrap_err().to_string();
/// assert_eq!(error, "page_objects_min is 25, page_objects is 5: the first must not be larger");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How lists are read.
    pub strategy: Strategy,
    /// How new the first list is.
    pub first_list: FirstList,
    /// Objects on a page, to begin with.
    pub page_objects: usize,
    /// Smallest page that time-outs lead to.
    pub page_objects_min: usize,
    /// Largest page that quick answers lead to.
    pub page_objects_max: usize,
    /// Bytes of memory that the objects of one list may hold. A list with more is given up and tried again
    /// later. `usize::MAX` for a source that is trusted to end.
    pub list_bytes_max: usize,
    /// Longest time without a byte of a list, and until a watch is open.
    pub progress: Duration,
    /// Longest time that one page may take, however it moves, where something between here and the
    /// server cuts requests after a time. Pages are made small enough for it from the start.
    pub request: Option<Duration>,
    /// Shortest life of a watch.
    pub watch_timeout_min: Duration,
    /// Every watch lives shorter than this.
    pub watch_timeout_max: Duration,
    /// Longest time without an event or bookmark on a watch whose server sends bookmarks.
    pub watch_silence: Duration,
    /// How waits after failures grow.
    pub pace: Pace,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            first_list: FirstList::default(),
            page_objects: limits::PAGE_OBJECTS,
            page_objects_min: limits::PAGE_OBJECTS_MIN,
            page_objects_max: limits::PAGE_OBJECTS_MAX,
            list_bytes_max: limits::LIST_BYTES_MAX,
            progress: limits::PROGRESS,
            request: None,
            watch_timeout_min: limits::WATCH_TIMEOUT_MIN,
            watch_timeout_max: limits::WATCH_TIMEOUT_MAX,
            watch_silence: limits::WATCH_SILENCE,
            pace: Pace::default(),
        }
    }
}

/// Settings that contradict each other.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A page size is out of order.
    #[error("{lower} is {low}, {upper} is {high}: the first must not be larger")]
    PageOrder {
        /// What must not be larger.
        lower: &'static str,
        /// Its value.
        low: usize,
        /// Than what.
        upper: &'static str,
        /// Its value.
        high: usize,
    },
    /// A time is out of order (R27).
    #[error("{shorter} is {short:?}, {longer} is {long:?}: the first must be shorter")]
    TimeOrder {
        /// What must be shorter.
        shorter: &'static str,
        /// Its value.
        short: Duration,
        /// Than what.
        longer: &'static str,
        /// Its value.
        long: Duration,
    },
    /// A value that makes no sense.
    #[error("{0} must not be zero")]
    Zero(&'static str),
}

impl Settings {
    /// Are the numbers in their order? The error names the two that are not.
    pub fn validate(&self) -> Result<(), SettingsError> {
        if self.page_objects_min == 0 {
            return Err(SettingsError::Zero("page_objects_min"));
        }
        if self.progress.is_zero() {
            return Err(SettingsError::Zero("progress"));
        }
        let sizes = [
            ("page_objects_min", self.page_objects_min),
            ("page_objects", self.page_objects),
            ("page_objects_max", self.page_objects_max),
        ];
        if let Some(pair) = sizes.windows(2).find(|pair| pair[0].1 > pair[1].1) {
            let ((lower, low), (upper, high)) = (pair[0], pair[1]);
            return Err(SettingsError::PageOrder { lower, low, upper, high });
        }
        if let Some(request) = self.request
            && self.progress >= request
        {
            let (shorter, short, longer) = ("progress", self.progress, "request");
            return Err(SettingsError::TimeOrder { shorter, short, longer, long: request });
        }
        let times = [
            ("progress", self.progress),
            ("watch_silence", self.watch_silence),
            ("watch_timeout_min", self.watch_timeout_min),
            ("watch_timeout_max", self.watch_timeout_max),
        ];
        if let Some(pair) = times.windows(2).find(|pair| pair[0].1 >= pair[1].1) {
            let ((shorter, short), (longer, long)) = (pair[0], pair[1]);
            return Err(SettingsError::TimeOrder { shorter, short, longer, long });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_in_order() {
        assert_eq!(Settings::default().validate(), Ok(()));
    }

    #[test]
    fn r27_times_out_of_order_are_refused_with_both_named() {
        let settings = Settings { progress: Duration::from_secs(200), ..Settings::default() };
        let text = settings.validate().unwrap_err().to_string();
        assert_eq!(text, "progress is 200s, watch_silence is 180s: the first must be shorter");
        let request = Some(Duration::from_secs(30));
        let text = Settings { request, ..Settings::default() }.validate().unwrap_err().to_string();
        assert_eq!(text, "progress is 30s, request is 30s: the first must be shorter");
        let settings = Settings { page_objects_min: 0, ..Settings::default() };
        assert_eq!(settings.validate(), Err(SettingsError::Zero("page_objects_min")));
    }
}
