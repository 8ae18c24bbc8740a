//! Objects whose bodies are held compressed, with a dictionary that is learned from the bodies of their
//! kind.
//!
//! ```
//! use masthead_compact::{Compactor, open};
//! use masthead_core::{Object, Resource};
//!
//! let text = format!(
//!     r#"{{"metadata":{{"name":"a","namespace":"b"}},"data":{{"text":"{}"}}}}"#,
//!     "as it was ".repeat(100)
//! );
//! let map = Object::parse(&Resource::pods(), text.into())?;
//! let held = Compactor::default().hold(&map).expect("is worth it");
//! assert!(held.body_bytes() < map.body_bytes() / 4);
//! assert_eq!(open(&held)?.body(), map.body());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compactor;
mod held;
pub mod limits;

pub use compactor::{Compactor, Packed};
pub use held::{OpenError, digest, open};
