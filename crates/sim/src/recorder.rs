//! Writing histories down and reading them back.

use std::io::{self, BufRead, Write};
use std::str::FromStr;

use crate::history::Record;

/// A history in memory, each record with the line it stands on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    lines: Vec<Line>,
}

/// One record and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Counted from 1, as editors do.
    pub number: usize,
    /// What happened.
    pub record: Record,
}

impl History {
    /// Reads JSON lines. Empty lines and lines that begin with `#` are skipped but counted.
    pub fn read(from: impl BufRead) -> Result<Self, HistoryError> {
        let mut lines = Vec::new();
        for (index, text) in from.lines().enumerate() {
            let line = index + 1;
            let text = text.map_err(|source| HistoryError::Read { line, source })?;
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let record = serde_json::from_str(text)
                .map_err(|source| HistoryError::Record { line, source })?;
            lines.push(Line { number: line, record });
        }
        Ok(Self { lines })
    }

    /// Writes JSON lines, one a record. Equal histories give equal bytes.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        self.lines.iter().try_for_each(|line| write_line(&mut to, &line.record))
    }

    /// The records with their places, in order.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The records alone, in order.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.lines.iter().map(|line| &line.record)
    }

    /// Appends a record, on the line after the last.
    pub fn push(&mut self, record: impl Into<Record>) {
        let number = self.lines.last().map_or(0, |line| line.number) + 1;
        self.lines.push(Line { number, record: record.into() });
    }
}

impl FromIterator<Record> for History {
    fn from_iter<I: IntoIterator<Item = Record>>(records: I) -> Self {
        let numbered = records.into_iter().zip(1..);
        Self { lines: numbered.map(|(record, number)| Line { number, record }).collect() }
    }
}

impl FromStr for History {
    type Err = HistoryError;

    fn from_str(text: &str) -> Result<Self, HistoryError> {
        Self::read(text.as_bytes())
    }
}

/// A history that could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// The bytes could not be had, or were no text.
    #[error("line {line} cannot be read")]
    Read {
        /// Counted from 1.
        line: usize,
        /// What the reader said.
        source: io::Error,
    },
    /// The line is no JSON object, or one that lacks something a record of its kind needs.
    #[error("line {line} is no record of a history")]
    Record {
        /// Counted from 1.
        line: usize,
        /// What the parser said.
        source: serde_json::Error,
    },
}

/// Takes records as they happen, and only ever appends.
///
/// Nothing but what it is given goes into the history: no clock, no random ids. So a run that is
/// deterministic gives the same bytes each time.
///
/// ```
/// use masthead_sim::Recorder;
/// use masthead_sim::history::RunEnd;
///
/// let mut recorder = Recorder::to_writer(Vec::new()).keeping();
/// recorder.record(RunEnd { t: 7 });
/// let (history, bytes) = recorder.finish()?;
/// assert_eq!(history.lines().len(), 1);
/// assert_eq!(bytes, b"{\"rec\":\"run_end\",\"t\":7}\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Recorder<W = io::Sink> {
    kept: Option<History>,
    out: W,
    /// No lines are made for a sink.
    writes: bool,
    failed: Option<io::Error>,
}

impl Recorder {
    /// Keeps all records in memory and writes nothing.
    pub fn in_memory() -> Self {
        Self { kept: Some(History::default()), out: io::sink(), writes: false, failed: None }
    }
}

impl<W: Write> Recorder<W> {
    /// Writes each record to `out` as a line of JSON and keeps nothing. Give it a buffered writer.
    pub fn to_writer(out: W) -> Self {
        Self { kept: None, out, writes: true, failed: None }
    }

    /// Also keeps the records in memory, from now on.
    pub fn keeping(mut self) -> Self {
        self.kept.get_or_insert_default();
        self
    }

    /// Appends one record. A write that fails is reported by [`finish`](Self::finish), so that
    /// the code under test need not care; nothing more is written after it.
    pub fn record(&mut self, record: impl Into<Record>) {
        let record = record.into();
        if self.writes && self.failed.is_none() {
            self.failed = write_line(&mut self.out, &record).err();
        }
        if let Some(kept) = &mut self.kept {
            kept.push(record);
        }
    }

    /// Ends the recording: what was kept (an empty history if nothing was asked to be) and the
    /// writer, flushed.
    pub fn finish(mut self) -> io::Result<(History, W)> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.out.flush()?;
        Ok((self.kept.unwrap_or_default(), self.out))
    }

    /// What was kept so far.
    pub fn history(&self) -> Option<&History> {
        self.kept.as_ref()
    }
}

fn write_line(to: &mut impl Write, record: &Record) -> io::Result<()> {
    serde_json::to_writer(&mut *to, record)?;
    to.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::history::{RunEnd, Scope};

    #[test]
    fn an_error_names_the_line_and_links_the_cause() {
        let error = "# a comment\n\n{\"rec\":\"run_end\"}\n".parse::<History>().unwrap_err();
        assert_eq!(error.to_string(), "line 3 is no record of a history");
        assert!(error.source().is_some());
    }

    #[test]
    fn fields_and_records_of_a_later_version_are_skipped() {
        let text = "{\"rec\":\"run_end\",\"t\":1,\"mood\":\"calm\"}\n{\"rec\":\"eclipse\",\"t\":2}";
        let history: History = text.parse().unwrap();
        let records: Vec<_> = history.records().cloned().collect();
        assert_eq!(records, [Record::RunEnd(RunEnd { t: 1 }), Record::Other]);
    }

    #[test]
    fn a_written_history_reads_back_and_leaves_out_what_is_not_there() {
        let open = crate::history::Open {
            sid: "w".into(),
            who: "me".into(),
            scope: Scope::Namespace("a".into()),
            selector: String::new(),
            fields: String::new(),
            from: Some(3),
            initial: false,
            bookmarks: true,
            oldest: None,
            current: None,
            injected: false,
            t0: 9,
        };
        let mut recorder = Recorder::to_writer(Vec::new());
        recorder.record(open.clone());
        let (_, bytes) = recorder.finish().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(
            text,
            "{\"rec\":\"open\",\"sid\":\"w\",\"who\":\"me\",\"scope\":\"namespace:a\",\
             \"from\":3,\"bookmarks\":true,\"t0\":9}\n"
        );
        let read: History = text.parse().unwrap();
        assert_eq!(read.records().collect::<Vec<_>>(), [&Record::Open(open)]);
    }

    #[test]
    fn a_failed_write_is_reported_at_the_end() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::other("disk full"))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut recorder = Recorder::to_writer(Full);
        recorder.record(RunEnd { t: 1 });
        assert_eq!(recorder.finish().err().unwrap().to_string(), "disk full");
    }
}
