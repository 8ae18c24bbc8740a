//! How a pod is, in the words that kubectl has for it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodSpec, PodStatus,
};

use super::columns::since;
use crate::client::units::age;

/// READY, STATUS and RESTARTS.
pub(super) fn cells(pod: &Pod, now: Timestamp) -> [String; 3] {
    let (spec, status) =
        (pod.spec.clone().unwrap_or_default(), pod.status.clone().unwrap_or_default());
    let mut summary = Summary::of(&spec, &status);
    let finished = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    if pod.metadata.deletion_timestamp.is_some() {
        if status.reason.as_deref() == Some("NodeLost") {
            "Unknown".clone_into(&mut summary.word);
        } else if !finished {
            "Terminating".clone_into(&mut summary.word);
        }
    }
    let Summary { ready, all, word, restarts } = summary;
    let restarts = match restarts.last {
        Some(last) if restarts.count > 0 => {
            format!("{} ({} ago)", restarts.count, age(since(last, now)))
        }
        _ => restarts.count.to_string(),
    };
    let word = if word.is_empty() { "<unknown>".to_owned() } else { word };
    [format!("{ready}/{all}"), word, restarts]
}

/// IP and NODE.
pub(super) fn wide_cells(pod: Pod) -> [String; 2] {
    let or_none = |text: Option<String>| {
        text.filter(|it| !it.is_empty()).unwrap_or_else(|| "<none>".to_owned())
    };
    let (ip, node) = (pod.status.and_then(|it| it.pod_ip), pod.spec.and_then(|it| it.node_name));
    [or_none(ip), or_none(node)]
}

/// What the containers of a pod say together.
struct Summary {
    ready: usize,
    all: usize,
    word: String,
    restarts: Restarts,
}

#[derive(Default)]
struct Restarts {
    count: i32,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &ContainerStatus) {
        self.count += status.restart_count;
        let ended = status.last_state.as_ref().and_then(|it| it.terminated.as_ref());
        self.last = self.last.max(ended.and_then(|it| it.finished_at.as_ref()).map(|it| it.0));
    }
}

impl Summary {
    fn of(spec: &PodSpec, status: &PodStatus) -> Self {
        let initial = spec.init_containers.as_deref().unwrap_or_default();
        let all = spec.containers.len() + initial.iter().filter(|it| is_sidecar(it)).count();
        let word = status.reason.clone().or_else(|| status.phase.clone()).unwrap_or_default();
        let mut summary = Self { ready: 0, all, word, restarts: Restarts::default() };
        if condition(status, "PodScheduled").is_some_and(|it| it.1 == "SchedulingGated") {
            "SchedulingGated".clone_into(&mut summary.word);
        }
        let sidecars = summary.initialize(initial, status);
        let initialized = condition(status, "Initialized").is_some_and(|it| it.0 == "True");
        if let Some(sidecars) = sidecars.done_or(initialized) {
            summary.restarts = sidecars;
            summary.run(status);
        }
        summary
    }

    /// Goes through the init containers up to the one that the pod waits for.
    fn initialize(&mut self, containers: &[Container], status: &PodStatus) -> Initialized {
        let mut sidecars = Restarts::default();
        let statuses = status.init_container_statuses.as_deref().unwrap_or_default();
        for (at, it) in statuses.iter().enumerate() {
            self.restarts.add(it);
            let sidecar = containers.iter().any(|of| of.name == it.name && is_sidecar(of));
            if sidecar {
                sidecars.add(it);
            }
            let state = it.state.clone().unwrap_or_default();
            if state.terminated.as_ref().is_some_and(|it| it.exit_code == 0) {
                continue;
            }
            if sidecar && it.started == Some(true) {
                self.ready += usize::from(it.ready);
                continue;
            }
            let word = wait_or_end(&state).filter(|it| it != "PodInitializing");
            let word = word.unwrap_or_else(|| format!("{at}/{}", containers.len()));
            self.word = format!("Init:{word}");
            return Initialized { done: false, sidecars };
        }
        Initialized { done: true, sidecars }
    }

    /// Goes through the containers, the last of which has the least to say.
    fn run(&mut self, status: &PodStatus) {
        let mut running = false;
        for it in status.container_statuses.iter().flatten().rev() {
            self.restarts.add(it);
            let state = it.state.clone().unwrap_or_default();
            match wait_or_end(&state) {
                Some(word) => self.word = word,
                None if it.ready && state.running.is_some() => {
                    running = true;
                    self.ready += 1;
                }
                None => {}
            }
        }
        if self.word == "Completed" && running {
            let ready = condition(status, "Ready").is_some_and(|it| it.0 == "True");
            let word = if ready { "Running" } else { "NotReady" };
            word.clone_into(&mut self.word);
        }
    }
}

/// How far the init containers are.
struct Initialized {
    done: bool,
    sidecars: Restarts,
}

impl Initialized {
    fn done_or(self, condition: bool) -> Option<Restarts> {
        (self.done || condition).then_some(self.sidecars)
    }
}

/// Init containers that stay.
fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Status and reason of a condition.
fn condition<'a>(status: &'a PodStatus, kind: &str) -> Option<(&'a str, &'a str)> {
    let found = status.conditions.iter().flatten().find(|it| it.type_ == kind)?;
    Some((&found.status, found.reason.as_deref().unwrap_or_default()))
}

/// Why a container waits, or how it ended.
fn wait_or_end(state: &ContainerState) -> Option<String> {
    let waits = state.waiting.as_ref().and_then(|it| it.reason.clone());
    waits.filter(|it| !it.is_empty()).or_else(|| state.terminated.as_ref().map(end))
}

fn end(ended: &ContainerStateTerminated) -> String {
    match (ended.reason.as_deref(), ended.signal) {
        (None | Some(""), Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        (None | Some(""), _) => format!("ExitCode:{}", ended.exit_code),
        (Some(reason), _) => reason.to_owned(),
    }
}

#[cfg(test)]
#[expect(
    clippy::needless_pass_by_value,
    reason = "calls read better without a `&` before each json!"
)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(spec: Value, status: Value) -> String {
        let pod = json!({"metadata": {"name": "web"}, "spec": spec, "status": status});
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        cells(&serde_json::from_value(pod).unwrap(), now).join(" ")
    }

    fn two() -> Value {
        json!({"containers": [{"name": "a"}, {"name": "b"}]})
    }

    fn container(name: &str, ready: bool, restarts: u32, state: Value) -> Value {
        json!({"name": name, "ready": ready, "restartCount": restarts, "state": state, "image": "", "imageID": ""})
    }

    #[test]
    fn a_pod_is_what_its_containers_are() {
        assert_eq!(shown(two(), json!({"phase": "Pending"})), "0/2 Pending 0");
        let up = container("a", true, 0, json!({"running": {}}));
        let loops = container("b", false, 3, json!({"waiting": {"reason": "CrashLoopBackOff"}}));
        let ended =
            container("b", false, 0, json!({"terminated": {"exitCode": 0, "reason": "Completed"}}));
        let killed =
            container("b", false, 0, json!({"terminated": {"exitCode": 137, "signal": 9}}));
        let of =
            |other: &Value| json!({"phase": "Running", "containerStatuses": [up.clone(), other]});
        assert_eq!(shown(two(), of(&loops)), "1/2 CrashLoopBackOff 3");
        assert_eq!(shown(two(), of(&ended)), "1/2 NotReady 0");
        assert_eq!(shown(two(), of(&killed)), "1/2 Signal:9 0");
        assert_eq!(shown(two(), json!({"phase": "Failed", "reason": "Evicted"})), "0/2 Evicted 0");
    }

    #[test]
    fn restarts_say_when() {
        let mut up = container("a", true, 2, json!({"running": {}}));
        up["lastState"] =
            json!({"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:55:00Z"}});
        let status = json!({"phase": "Running", "containerStatuses": [up]});
        assert_eq!(shown(two(), status), "1/2 Running 2 (5m ago)");
    }

    #[test]
    fn init_containers_come_first() {
        let spec = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "j"}]});
        let done = container("i", true, 0, json!({"terminated": {"exitCode": 0}}));
        let of = |state: Value| json!({"phase": "Pending", "initContainerStatuses": [done.clone(), container("j", false, 0, state)]});
        assert_eq!(shown(spec.clone(), of(json!({"running": {}}))), "0/1 Init:1/2 0");
        assert_eq!(
            shown(spec.clone(), of(json!({"waiting": {"reason": "ImagePullBackOff"}}))),
            "0/1 Init:ImagePullBackOff 0"
        );
        assert_eq!(
            shown(spec.clone(), of(json!({"waiting": {"reason": "PodInitializing"}}))),
            "0/1 Init:1/2 0"
        );
        assert_eq!(
            shown(spec, of(json!({"terminated": {"exitCode": 2}}))),
            "0/1 Init:ExitCode:2 0"
        );
    }

    #[test]
    fn a_sidecar_counts_as_a_container() {
        let spec = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "s", "restartPolicy": "Always"}]});
        let mut side = container("s", true, 1, json!({"running": {}}));
        side["started"] = true.into();
        let up = container("a", true, 0, json!({"running": {}}));
        let status =
            json!({"phase": "Running", "initContainerStatuses": [side], "containerStatuses": [up]});
        assert_eq!(shown(spec, status), "2/2 Running 1");
    }

    #[test]
    fn what_is_being_deleted_terminates_unless_it_has_finished() {
        let of = |phase: &str| {
            let pod = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": phase}});
            cells(&serde_json::from_value(pod).unwrap(), "2026-01-01T01:00:00Z".parse().unwrap())[1]
                .clone()
        };
        assert_eq!(
            (of("Running"), of("Succeeded")),
            ("Terminating".to_owned(), "Succeeded".to_owned())
        );
    }
}
