//! A Kubernetes-compatible API server whose reads come from a watch cache.
//!
//! Reads are answered from caches that follow a [`Store`](masthead_store::Store) by its one watch;
//! writes go to the store. Clients of Kubernetes talk to it unchanged.
//!
//! ```
//! use std::sync::Arc;
//! use masthead_server::{Config, Limits, Security, Server, Tokens};
//! use masthead_store::MemoryStore;
//!
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! let config = Config {
//!     listen: "127.0.0.1:0".parse().unwrap(),
//!     security: Security::InsecureHttp,
//!     tokens: Tokens::default(),
//!     limits: Limits::default(),
//!     history: Default::default(),
//!     compress_bodies: None,
//! };
//! let server = Server::start(config, Arc::new(MemoryStore::new())).await?;
//! server.ready().await;
//! server.shutdown().await;
//! # Ok::<(), masthead_server::StartError>(())
//! # }).unwrap();
//! ```

mod app;
mod authn;
mod authz;
mod body;
mod budget;
mod catalog;
mod connections;
mod credentials;
mod definitions;
mod discovery;
mod document;
mod expiry;
mod feed;
mod flights;
mod housekeeping;
pub mod limits;
mod listing;
mod meta;
mod metrics;
mod negotiate;
mod packing;
mod params;
mod patch;
mod prepare;
#[cfg(test)]
mod random;
mod reads;
mod records;
mod resources;
mod respond;
mod route;
mod scale;
mod self_check;
mod server;
mod statz;
mod tasks;
mod told;
mod unreadable;
mod validate;
mod watching;
mod writes;
mod yaml;
mod zipped;

pub use authn::{TokenFileError, Tokens, User};
pub use authz::{MASTERS, READERS};
pub use credentials::{Credentials, CredentialsError, Trust, tls_from_files, write_secret};
pub use limits::Limits;
pub use records::crypto_provider;
pub use server::{Config, Security, Server, StartError};
