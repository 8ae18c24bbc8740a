//! Events as text.

use std::io::IsTerminal;

use jiff::Timestamp;
use masthead_core::{Resource, Scope};
use masthead_informer::Event;
use masthead_informer::upstream::kube_client::core::DynamicObject;
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Value, json};

use super::columns::Columns;
use super::{Output, WatchArguments};
use crate::client::table::{Row, Table};

/// Prints events in one of the formats.
pub(super) struct Printer {
    output: Output,
    /// With what happened to each.
    events: bool,
    resource: Resource,
    columns: Columns,
    table: Table,
    /// Whether the names of the columns were printed.
    headed: bool,
    coloured: bool,
}

impl Printer {
    pub(super) fn new(resource: &Resource, arguments: &WatchArguments, everywhere: bool) -> Self {
        let namespace = everywhere && resource.scope() == Scope::Namespaced;
        let (output, events) = (arguments.output, arguments.output_watch_events);
        let coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self {
            output,
            events,
            columns: Columns::new(resource, namespace, output == Output::Wide),
            resource: resource.clone(),
            table: Table::default(),
            headed: false,
            coloured,
        }
    }

    /// The text of events that are printed together.
    pub(super) fn print(&mut self, events: &[Event<DynamicObject>]) -> String {
        match self.output {
            Output::Table | Output::Wide => self.rows(events),
            Output::Json => events.iter().map(|event| self.json(event)).collect(),
            Output::Yaml => events.iter().map(|event| self.yaml(event)).collect(),
            Output::Name => events.iter().map(|event| self.name(event)).collect(),
        }
    }

    fn rows(&mut self, events: &[Event<DynamicObject>]) -> String {
        let now = Timestamp::now();
        let mut rows = Vec::new();
        if !self.headed && !events.is_empty() {
            self.headed = true;
            // As wide as the longest that may come.
            let event = self.events.then(|| format!("{:8}", "EVENT"));
            rows.push(Row::new(event.into_iter().chain(self.columns.head()).collect()));
        }
        for event in events {
            let kind = self.events.then(|| kind(event).to_owned());
            let cells = self.columns.row(event, now);
            let colour = colour(event).filter(|_| self.coloured);
            rows.push(Row { cells: kind.into_iter().chain(cells).collect(), colour });
        }
        self.table.print(&rows)
    }

    /// As kubectl does: an event is a line, an object is indented.
    fn json(&self, event: &Event<DynamicObject>) -> String {
        let body = self.body(event);
        if self.events {
            return format!("{{\"type\":\"{}\",\"object\":{body}}}\n", kind(event));
        }
        let mut text = Vec::new();
        let mut indented =
            Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b"    "));
        let written = value(&body).serialize(&mut indented);
        written.expect("JSON that was read can be written");
        String::from_utf8_lossy(&text).into_owned() + "\n"
    }

    fn yaml(&self, event: &Event<DynamicObject>) -> String {
        let object = value(&self.body(event));
        let document =
            if self.events { json!({"type": kind(event), "object": object}) } else { object };
        let text = serde_saphyr::to_string(&document);
        format!("---\n{}\n", text.expect("JSON can be written as YAML").trim_end())
    }

    fn name(&self, event: &Event<DynamicObject>) -> String {
        let kind = self.resource.kind().to_lowercase();
        let dot = if self.resource.group().is_empty() { "" } else { "." };
        let group = self.resource.group();
        let event_kind =
            if self.events { format!("{} ", self::kind(event)) } else { String::new() };
        format!("{event_kind}{kind}{dot}{group}/{}\n", event.key().name())
    }

    /// The object's JSON; of one that is gone without a trace, its name.
    fn body(&self, event: &Event<DynamicObject>) -> String {
        let json = event.entry().and_then(|entry| entry.json().ok());
        if let Some(json) = json {
            return String::from_utf8_lossy(&json).into_owned();
        }
        let key = event.key();
        let mut metadata = json!({"name": key.name()});
        if !key.namespace().is_empty() {
            metadata["namespace"] = key.namespace().into();
        }
        let (version, kind) = (self.resource.api_version(), self.resource.kind());
        json!({"apiVersion": version, "kind": kind, "metadata": metadata}).to_string()
    }
}

fn value(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_default()
}

fn kind<K>(event: &Event<K>) -> &'static str {
    match event {
        Event::Added { .. } => "ADDED",
        Event::Updated { .. } => "MODIFIED",
        Event::Deleted { .. } => "DELETED",
    }
}

/// What comes is green, what goes is red.
fn colour<K>(event: &Event<K>) -> Option<&'static str> {
    match event {
        Event::Added { initial: false, .. } => Some("\x1b[32m"),
        Event::Deleted { .. } => Some("\x1b[31m"),
        _ => None,
    }
}
