//! One vocabulary for what happened, and one judge of it.
//!
//! Whatever runs (a naive model, the simulator, the whole stack, real processes) writes down what
//! it did as a [`History`] of [`Record`]s through a [`Recorder`]. The offline [`check`] reads that
//! history and names every [`Rule`] it breaks. Because the judge sees nothing but the history, one
//! that is made sharper later can judge old histories again.
//!
//! ```
//! use masthead_sim::{History, Rule, check};
//!
//! // Revision 2 is missing from the stream.
//! let history: History = r#"
//! {"rec":"commit","rv":1,"key":"a/x","uid":"x","op":"create","hash":10}
//! {"rec":"commit","rv":2,"key":"a/y","uid":"y","op":"create","hash":20}
//! {"rec":"commit","rv":3,"key":"a/x","uid":"x","op":"update","hash":11}
//! {"rec":"open","sid":"w","who":"me","scope":"all","from":1,"t0":0}
//! {"rec":"frame","sid":"w","type":"MODIFIED","key":"a/x","uid":"x","rv":3,"hash":11,"t":5}
//! "#
//! .parse()?;
//! let rules: Vec<Rule> = check(&history).into_iter().map(|found| found.rule).collect();
//! assert_eq!(rules, [Rule::S3, Rule::S5]);
//! # Ok::<(), masthead_sim::HistoryError>(())
//! ```

pub mod checker;
mod dice;
pub mod history;
pub mod limits;
pub mod malice;
pub mod model;
pub mod recorder;
pub mod seeds;
mod selector;
pub mod world;

/// Selectors written for obviousness: the oracle that the production selectors are compared with.
pub mod naive {
    pub use crate::selector::{FieldSelector, LabelSelector};
}

pub use checker::{Rule, Violation, check};
pub use history::Record;
pub use model::{Event, Log, Query};
pub use recorder::{History, HistoryError, Line, Recorder};
