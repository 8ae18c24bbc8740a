//! How a factory is set up.

use std::time::Duration;

use masthead_reflector::{FirstList, SettingsError, Strategy};

use crate::limits;

/// The time-outs of a factory, one hierarchy that is checked (R27): each is shorter than the next.
///
/// ```
/// use std::time::Duration;
/// use masthead_informer::{FactorySettings, Timeouts};
///
/// let timeouts = Timeouts { request: Duration::from_secs(20), ..Timeouts::default() };
/// let refused = FactorySettings { timeouts, ..FactorySettings::default() }.validate().unwrap_err();
/// assert_eq!(refused.to_string(), "progress is 30s, request is 20s: the first must be shorter");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// Until a connection stands. Set it for the transport too.
    pub connect: Duration,
    /// Without a byte of an answer.
    pub progress: Duration,
    /// For one page of a list, however it moves: what does not fit is asked for in smaller pages.
    pub request: Duration,
    /// For one resource in a wait.
    pub resource_sync: Duration,
    /// For a whole wait.
    pub whole_sync: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: limits::CONNECT,
            progress: limits::PROGRESS,
            request: limits::REQUEST,
            resource_sync: limits::RESOURCE_SYNC,
            whole_sync: limits::WHOLE_SYNC,
        }
    }
}

impl Timeouts {
    /// Are they in their order? The error names the two that are not.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let times = [
            ("connect", self.connect),
            ("progress", self.progress),
            ("request", self.request),
            ("resource_sync", self.resource_sync),
            ("whole_sync", self.whole_sync),
        ];
        match times.windows(2).find(|pair| pair[0].1 >= pair[1].1) {
            None => Ok(()),
            Some(pair) => {
                let ((shorter, short), (longer, long)) = (pair[0], pair[1]);
                Err(SettingsError::TimeOrder { shorter, short, longer, long })
            }
        }
    }
}

/// When what is not critical begins.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Startup {
    /// With everything else.
    #[default]
    Beside,
    /// When all that is critical has synced, or was given up by its time-out.
    After,
}

/// How a factory is set up. The default is right for a Kubernetes API server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FactorySettings {
    /// The time-outs.
    pub timeouts: Timeouts,
    /// How lists are read.
    pub strategy: Strategy,
    /// How new the first list is.
    pub first_list: FirstList,
    /// When what is not critical begins.
    pub startup: Startup,
    /// Bytes of memory that the objects of one resource's list may hold. A list with more is given up and
    /// tried again later: a server that sends without end does not take all memory.
    pub list_bytes_max: usize,
    /// Bytes that handlers may pin in one cache before the slowest loses its place (R20).
    pub pinned_bytes: usize,
    /// Between two savings of those caches that have a place on disk.
    pub save_interval: Duration,
    /// Spreads the requests of many clients. Zero: drawn anew for each cache.
    pub seed: u64,
}

impl Default for FactorySettings {
    fn default() -> Self {
        Self {
            timeouts: Timeouts::default(),
            strategy: Strategy::default(),
            first_list: FirstList::default(),
            startup: Startup::default(),
            list_bytes_max: masthead_reflector::limits::LIST_BYTES_MAX,
            pinned_bytes: limits::PINNED_BYTES_MAX,
            save_interval: limits::SAVE_INTERVAL,
            seed: 0,
        }
    }
}

impl FactorySettings {
    /// Fails if two settings contradict each other.
    pub fn validate(&self) -> Result<(), SettingsError> {
        self.timeouts.validate()?;
        self.reflector().validate()
    }

    /// The part that reflectors live by.
    pub(crate) fn reflector(&self) -> masthead_reflector::Settings {
        masthead_reflector::Settings {
            strategy: self.strategy,
            first_list: self.first_list,
            progress: self.timeouts.progress,
            request: Some(self.timeouts.request),
            list_bytes_max: self.list_bytes_max,
            ..masthead_reflector::Settings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r27_times_out_of_order_are_refused_with_both_named() {
        assert_eq!(FactorySettings::default().validate(), Ok(()));
        let timeouts = Timeouts { whole_sync: Duration::from_secs(300), ..Timeouts::default() };
        let text = timeouts.validate().unwrap_err().to_string();
        assert_eq!(text, "resource_sync is 300s, whole_sync is 300s: the first must be shorter");
        let timeouts = Timeouts { connect: Duration::from_secs(31), ..Timeouts::default() };
        let text = timeouts.validate().unwrap_err().to_string();
        assert_eq!(text, "connect is 31s, progress is 30s: the first must be shorter");
    }
}
