//! Talks to a Kubernetes API server.
//!
//! An [`Upstream`] is one server: its address, its credentials, its connections. [`Upstream::source`]
//! makes of one of its resources a [`Source`](masthead_reflector::Source), which a
//! [`Driver`](masthead_reflector::Driver) keeps a cache in step with.
//!
//! ```no_run
//! use masthead_core::Selectors;
//! use masthead_reflector::Driver;
//! use masthead_upstream::{Namespaces, Representation, Settings, Upstream};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let upstream = Upstream::infer(Settings::default()).await?;
//! let pods = upstream.find("po").await?.resource;
//! let selectors = Selectors { labels: "app=web".parse()?, ..Selectors::default() };
//! let source = upstream.source(&pods, &Namespaces::All, &selectors, Representation::Full)?;
//!
//! let (writer, cache) = masthead_cache::Cache::new(masthead_cache::Config::default());
//! let settings = masthead_reflector::Settings::default();
//! let driver = Driver::new(source, writer, settings, upstream.memory(), 1);
//! let mut report = driver.report();
//! tokio::spawn(driver.run());
//! report.wait_for(|report| report.synced).await?;
//! assert!(cache.is_ready());
//! # Ok(())
//! # }
//! ```
//!
//! kube-client reads kubeconfigs and loads credentials; the HTTP beneath is our own, on hyper: bodies are
//! taken as they arrive, HTTP/2 is spoken, and nothing is tried again behind the reflector's back.
//!
//! **Invariant:** what goes wrong with a request is a [`Failure`](masthead_reflector::Failure). Nothing here
//! decides what follows from it.

mod address;
mod answer;
mod connector;
mod credentials;
mod discovery;
mod error;
mod failures;
mod gather;
mod gunzip;
pub mod limits;
mod lines;
mod outgoing;
mod pace;
mod pool;
mod query;
mod settings;
mod source;
mod split;
mod upstream;

pub use discovery::{FindError, Served};
pub use error::UpstreamError;
pub use kube_client;
pub use settings::{HttpVersion, Settings, SettingsError};
pub use source::{ApiSource, Namespaces, Representation, SourceError};
pub use upstream::Upstream;
