//! Keeps a cache in step with a list-and-watch API.
//!
//! [`Reflector`] is the machine: it decides what to ask next, without I/O and without a clock. A
//! [`Source`] answers, and a [`Driver`] runs the one on the other into a cache. A [`Mux`] makes a
//! source for each resource out of one upstream watch over all of them.
//!
//! **Invariant:** there is no second way to fill a cache. Whatever a source is, the same machine
//! decides about lists, resumption, waits and what is too old to be believed.

mod backoff;
mod decode;
mod driver;
mod failure;
pub mod limits;
mod machine;
mod mux;
mod random;
mod report;
mod request;
mod scripted;
mod server;
mod settings;
mod share;
mod source;

pub use backoff::Pace;
pub use decode::Decoder;
pub use driver::Driver;
pub use failure::{Class, Failure, Recovery};
pub use machine::{Reflector, Start};
pub use mux::{Mux, MuxSource, Upstream, UpstreamEvents, UpstreamItem};
pub use report::{Errors, LastError, Phase, Relists, Report, Rewound};
pub use request::{
    ListAt, ListRequest, Output, Page, RequestId, WatchFrom, WatchItem, WatchRequest,
};
pub use scripted::{Scripted, ScriptedStream};
pub use server::ServerMemory;
pub use settings::{FirstList, Settings, SettingsError, Strategy};
pub use share::share_unchanged;
pub use source::{BoxFuture, Events, Meter, Source};
