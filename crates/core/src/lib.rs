//! The vocabulary of Masthead.
//!
//! Everything here is a value: no I/O, no clock, no runtime, no randomness. An [`Object`] is its JSON
//! bytes plus a small parsed head; a [`Revision`] orders everything; the modules below hold the
//! grammar of Kubernetes' list and watch requests and the exact shapes of their answers.

mod change;
mod contain;
mod frame;
mod json;
mod key;
pub mod limits;
mod object;
mod options;
#[doc(hidden)]
pub mod planted;
mod resource;
mod revision;
mod selector;
mod status;
mod time;
mod token;

pub use change::{Cause, Change, EventType, Mutation};
pub use contain::{Panic, contain, contain_future};
pub use frame::{
    Bookmark, Frame, INITIAL_EVENTS_END, ListBody, ListMeta, ListPage, Open, Projection,
    SplitError, WatchLine,
};
pub use key::{KeyError, ObjectKey};
pub use object::{CommonStrings, Labels, Object, OwnerReference, ParseError};
pub use options::{Freshness, ListAt, ListOptions, Query, WatchFrom, WatchOptions};
pub use resource::{Resource, Scope, SelectableField};
pub use revision::Revision;
pub use selector::{
    FieldRequirement, FieldSelector, FieldTarget, LabelOperator, LabelRequirement, LabelSelector,
    SelectorError, Selectors, ShardField, ShardRange, ShardSelector,
};
pub use status::{Reason, Status, StatusCause, StatusDetails, cache_retry_seconds};
pub use time::Time;
pub use token::{ContinueToken, TokenError};
