//! The wire contract, rule by rule, over real HTTP: both stores, HTTP/1.1 and HTTP/2.

#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod definitions;
mod discovery;
mod encodings;
mod paging;
mod requests;
mod selectors;
mod versions;
mod watches;
mod world;
mod writes;
