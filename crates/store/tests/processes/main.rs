//! Stores in processes that come to a bad end.

mod child;
mod crash;
mod full_disk;
