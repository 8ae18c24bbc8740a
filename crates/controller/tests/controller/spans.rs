//! What a reconcile says of itself to whoever traces.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use masthead_controller::{Action, Context, Controller, ReconcileError};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::world::World;

type Fields = BTreeMap<&'static str, String>;

/// Writes down the fields of the spans of reconciles.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Fields>>>, Arc<AtomicU64>);

struct Reading<'a>(&'a mut Fields);

impl Visit for Reading<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.name() == "reconcile"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::new();
        span.record(&mut Reading(&mut fields));
        self.0.lock().push(fields);
        Id::from_u64(self.1.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_is_a_span_with_its_key_its_trigger_and_its_attempt() {
    let spans = Spans::default();
    let _tracing = tracing::subscriber::set_default(spans.clone());
    let world = World::new();
    world.put("configmaps", "default/a", json!({}));
    let factory = world.factory();
    let controller = Controller::<ConfigMap>::new(&factory, "maps").unwrap();
    let runner = controller.reconcile(|it: Context<ConfigMap>| {
        let first = it.attempt() == 1 && it.trigger().0 == "initial";
        let failed = Err(ReconcileError::retry("not at the first try"));
        std::future::ready(if first { failed } else { Ok(Action::Done) })
    });
    let stop = CancellationToken::new();
    factory.start();
    tokio::spawn(runner.run(stop.clone()));
    sleep(Duration::from_secs(1)).await;
    world.put("configmaps", "default/a", json!({"data": {"x": "1"}}));
    sleep(Duration::from_secs(1)).await;
    stop.cancel();
    let seen = spans.0.lock().clone();
    let span = |trigger: &str, attempt: &str| {
        let fields = [
            ("controller", "maps"),
            ("key", "default/a"),
            ("trigger", trigger),
            ("attempt", attempt),
        ];
        fields.map(|(name, value)| (name, value.to_owned())).into_iter().collect::<Fields>()
    };
    assert_eq!(seen, [span("initial", "1"), span("retry", "2"), span("updated", "1")]);
}
