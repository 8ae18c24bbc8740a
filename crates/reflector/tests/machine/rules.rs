//! R1 to R16, one after the other.

pub(crate) mod lists;
pub(crate) mod order;
mod watches;
