//! Where objects are kept.
//!
//! A [`Store`] holds the objects of all resources under one revision, commits conditional writes in
//! groups, and keeps a log of what happened, which watches replay and then follow live. There is one
//! in memory, for tests and demonstrations, one on disk, and one in an etcd cluster, which several
//! servers can share.
//!
//! ```
//! use masthead_core::{Object, Resource, Revision};
//! use masthead_store::{Condition, MemoryStore, ResourceName, Store, Write};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let (store, pods) = (MemoryStore::new(), ResourceName::from(&Resource::pods()));
//! let body = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"shop"}}"#;
//! let pod = Object::parse(&Resource::pods(), body.into())?;
//! let create = Write::put(pods, pod, Condition::Absent);
//! let results = store.commit(vec![create.clone(), create]).await;
//! assert_eq!(results[0].as_ref().unwrap().revision, Revision(2));
//! assert!(results[1].is_err(), "it is there already");
//! # Ok::<(), masthead_core::ParseError>(())
//! # }).unwrap();
//! ```

mod embedded;
mod error;
mod etcd;
mod follow;
mod ledger;
pub mod limits;
mod memory;
mod name;
mod page;
mod store;
mod tail;
mod value;
mod write;

pub use embedded::{Clock, EmbeddedStore, OpenError, Settings};
pub use error::{CommitError, StoreError};
pub use etcd::{EtcdError, EtcdSettings, EtcdStore};
pub use memory::MemoryStore;
pub use name::ResourceName;
pub use store::{Batch, BoxFuture, Events, Health, Range, RangePage, Store};
pub use value::Value;
pub use write::{Committed, Condition, Event, EventKind, Op, Requirement, Write};
