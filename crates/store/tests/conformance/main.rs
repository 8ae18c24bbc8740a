//! What every store has to do, run on each of them.

mod groups;
mod lab;
mod model;
mod property;
mod reading;
mod script;
mod watches;
