//! What turns a cache into a controller.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use masthead_controller::{Action, Context, Controller, Manager};
//! use masthead_informer::{Factory, upstream};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let factory = Factory::new(upstream::Upstream::infer(upstream::Settings::default()).await?);
//! let maps = Controller::<ConfigMap>::new(&factory, "maps")?;
//! let maps = maps.reconcile(async |context: Context<ConfigMap>| {
//!     let Some(map) = context.object() else { return Ok(Action::Done) };
//!     println!("{} has {} entries", map.key(), map.decode()?.data.iter().flatten().count());
//!     Ok(Action::RequeueAfter(Duration::from_secs(600)))
//! });
//! Manager::new(&factory).with(maps).run_until_signalled().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Controller`] has a key of a [`queue::WorkQueue`] for each object that something happened to, and
//! reconciles one object at a time with one worker. A [`Manager`] runs several on one factory, and with a
//! [`LeaderElection`] only while it leads.
//!
//! **Invariant:** a reconcile begins with a cache that has everything which the last one of the same object
//! says it wrote (R33), or after a deadline.
//!
//! **Invariant:** nothing reconciles after the moment until which its lease was renewed, whether or not
//! somebody noticed that the renewal failed.

#[cfg(not(shuttle))]
mod controller;
#[cfg(not(shuttle))]
mod finalizer;
#[cfg(not(shuttle))]
mod leader;
pub mod limits;
#[cfg(not(shuttle))]
mod manager;
pub mod queue;
#[cfg(not(shuttle))]
mod recorder;
#[cfg(not(shuttle))]
mod status;
mod sync;

#[cfg(not(shuttle))]
pub use controller::{
    Action, Context, Controller, ControllerHandle, ControllerMetrics, ControllerPanics,
    ControllerSnapshot, Predicate, Quarantined, ReconcileError, Runner,
};
#[cfg(not(shuttle))]
pub use finalizer::Finalizer;
#[cfg(not(shuttle))]
pub use leader::{LeaderElection, Leadership, Term};
#[cfg(not(shuttle))]
pub use manager::{Manager, RunError};
#[cfg(not(shuttle))]
pub use recorder::{EventKind, Recorder};
#[cfg(not(shuttle))]
pub use status::{patch_status, set_condition};
