//! Informers: caches that follow an API server, and those who read them and listen to them.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::Pod;
//! use masthead_informer::{Event, Factory, HandlerOptions, Index, upstream};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let server = upstream::Upstream::infer(upstream::Settings::default()).await?;
//! let factory = Factory::new(server);
//! let pods = factory.informer::<Pod>().index(Index::field("node", "spec.nodeName")).build()?;
//! pods.add_handler(&HandlerOptions::default(), async |event: Event<Pod>| {
//!     println!("{}", event.key());
//! })?;
//! factory.start();
//! // Says what is missing and why, if something is.
//! factory.wait_for_sync().await?;
//!
//! let state = pods.lister();
//! for pod in state.by_index("node", "node-1")? {
//!     println!("{} has {} containers", pod.key(), pod.decode()?.spec.iter().flat_map(|it| &it.containers).count());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! One [`Factory`] talks to one server. Whoever asks it for the same thing shares one list, one watch and
//! one cache, however many handlers and listers there are. A [`Lister`] is the state at one moment; a
//! [`Handler`] or a [`Subscription`] is every step from the present on. Neither ever holds up the cache.
//!
//! **Invariant:** for each key a handler hears `(Added Updated* Deleted)*`. What it missed, whether because
//! the connection was lost or because it was slow, it hears as one step from what it was told last to what
//! is there.
//!
//! **Invariant:** a cache that has not synced says why: see [`SyncReport`].
//!
//! **Invariant:** a panic in a function of the user ends that call and nothing else. It is logged and counted
//! in the report. A task that ends although nothing told it to is logged, and stands in the report:
//! see [`Factory::task_ended`].

mod connector;
mod entry;
mod event;
mod exact;
mod factory;
mod filter;
mod handler;
mod index;
mod informer;
mod kind;
pub mod limits;
mod lister;
mod metrics;
mod options;
mod part;
mod place;
mod projection;
mod report;
mod representation;
mod saved;
mod settings;
mod subscriber;
mod subscription;
mod tasks;
mod user_calls;

pub use connector::{Connector, Pack, Packed, Wanted};
pub use entry::{DecodeError, Entry};
pub use event::{DeleteCause, Event, LastState};
pub use factory::Factory;
pub use handler::{Handler, HandlerHandle};
pub use index::Index;
pub use informer::{HandlerOptions, Informer, NotThereYet, TooManyHandlers};
pub use kind::{Kind, KnownScope};
pub use lister::Lister;
/// Talking to a server.
pub use masthead_upstream as upstream;
pub use metrics::Metrics;
pub use options::{BuildError, InformerBuilder};
pub use projection::Projection;
pub use report::{ResourceReport, SyncError, SyncReport};
pub use representation::{Representation, Transform};
pub use saved::SavedError;
pub use settings::{FactorySettings, Startup, Timeouts};
pub use subscriber::HandlerReport;
pub use subscription::Subscription;
pub use tasks::TaskEnded;
pub use user_calls::UserPanics;
