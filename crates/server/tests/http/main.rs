//! Everything that goes over real HTTP: the wire contract, rule by rule, with both stores and both
//! versions of HTTP; every limit at N and N + 1; hostile input; who is let in.

#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod compressed;
mod definitions;
mod discovery;
mod encodings;
mod events;
mod full;
mod held;
mod hostile;
mod limits;
mod paging;
mod replicas;
mod requests;
mod restarts;
mod security;
mod selectors;
mod shares;
mod shutdown;
mod versions;
mod watches;
mod world;
mod writes;
