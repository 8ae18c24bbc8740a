//! Pods as large as real ones: number `i` is the same every time.

use std::fmt::Write as _;

use bytes::Bytes;
use masthead_core::{Object, Resource};

const NODES: u32 = 200;
const PODS_PER_OWNER: u32 = 3;
const CONTAINERS: [&str; 3] = ["app", "proxy", "metrics"];

/// What the pods have in common, where most of their bytes are.
const OWNED: &str = r#"{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-06-01T08:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{}},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"00000000-0000-4000-a000-000000000000\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:args":{},"f:env":{".":{},"k:{\"name\":\"LOG_LEVEL\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"DB_HOST\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{},"f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:volumeMounts":{".":{},"k:{\"mountPath\":\"/etc/app\"}":{".":{},"f:mountPath":{},"f:name":{}}}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:terminationGracePeriodSeconds":{}}}}"#;
const REPORTED: &str = r#"{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-06-01T08:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:observedGeneration":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Initialized\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:observedGeneration":{},"f:status":{},"f:type":{}},"k:{\"type\":\"PodScheduled\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:observedGeneration":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:observedGeneration":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:observedGeneration":{},"f:phase":{},"f:podIP":{},"f:startTime":{}}},"subresource":"status"}"#;
const CONTAINER: &str = r#""image":"registry.example.com/shop/server:v1.4.2","args":["--listen=:8080","--config=/etc/app/config.yaml","--cache-dir=/var/cache/app"],"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"},{"name":"metrics","containerPort":9090,"protocol":"TCP"}],"env":[{"name":"LOG_LEVEL","value":"info"},{"name":"DB_HOST","value":"postgres-primary.databases.svc.cluster.local"},{"name":"POD_NAME","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}},{"name":"DB_PASSWORD","valueFrom":{"secretKeyRef":{"name":"db","key":"password"}}}],"resources":{"limits":{"cpu":"500m","memory":"512Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},"volumeMounts":[{"name":"config","readOnly":true,"mountPath":"/etc/app"},{"name":"scratch","mountPath":"/var/cache/app"},{"name":"kube-api-access","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"livenessProbe":{"httpGet":{"path":"/healthz","port":8080,"scheme":"HTTP"},"initialDelaySeconds":5,"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent","securityContext":{"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true,"capabilities":{"drop":["ALL"]}}}"#;
const SPEC: &str = r#""restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"server","securityContext":{"runAsUser":1000,"runAsNonRoot":true,"fsGroup":1000},"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"volumes":[{"name":"config","configMap":{"name":"config","defaultMode":420}},{"name":"scratch","emptyDir":{}},{"name":"kube-api-access","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}}],"defaultMode":420}}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority""#;
const CONDITION: &str = r#""observedGeneration":1,"status":"True","lastProbeTime":null,"lastTransitionTime":"2026-06-01T08:00:00Z"}"#;
const STATUS: &str = r#""state":{"running":{"startedAt":"2026-06-01T08:00:00Z"}},"lastState":{},"ready":true,"restartCount":0,"image":"registry.example.com/shop/server:v1.4.2","imageID":"registry.example.com/shop/server@sha256:6b1d0c4f7a92e85364f0ab1c2d3e4f5061728394a5b6c7d8e9f00112233445566","containerID":"containerd://0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0","started":true}"#;

/// The node of pod `i`, before it moved.
pub(crate) fn node(i: u32) -> String {
    format!("worker-{:04}.north-1.compute.example.internal", i % NODES)
}

/// How many of the first `pods` begin on the same node.
pub(crate) fn on_a_node(pods: u32) -> usize {
    (pods / NODES) as usize
}

/// Pod `i` as JSON, about 9.4 KB. A `move_by` puts it on another node.
pub(crate) fn json(i: u32, revision: u64, move_by: u32) -> String {
    let owner = i / PODS_PER_OWNER;
    let (team, node) = (i % 40, node(i + move_by));
    let mut text = String::with_capacity(12_000);
    let to = &mut text;
    put(
        to,
        format_args!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"server-{owner:05}-{i:05}","generateName":"server-{owner:05}-","namespace":"team-{team:02}","uid":"{i:08x}-0000-4000-a000-{i:012x}","resourceVersion":"{revision}","generation":1,"creationTimestamp":"2026-06-01T08:00:00Z","labels":{{"app":"server-{owner:05}","app.kubernetes.io/component":"server","app.kubernetes.io/part-of":"shop","pod-template-hash":"{owner:010x}","topology.kubernetes.io/zone":"north-1a"}},"annotations":{{"checksum/config":"{owner:064x}"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"server-{owner:05}","uid":"{owner:08x}-0000-4000-b000-{owner:012x}","controller":true,"blockOwnerDeletion":true}}],"managedFields":[{OWNED},{REPORTED}]}},"spec":{{"containers":["#
        ),
    );
    each(to, &CONTAINERS, "name", CONTAINER);
    put(
        to,
        format_args!(
            r#"],"nodeName":"{node}",{SPEC}}},"status":{{"observedGeneration":1,"phase":"Running","hostIP":"10.0.0.4","podIP":"10.100.{}.{}","conditions":["#,
            i >> 8,
            i & 255
        ),
    );
    each(to, &["Initialized", "Ready", "ContainersReady", "PodScheduled"], "type", CONDITION);
    to.push_str(r#"],"containerStatuses":["#);
    each(to, &CONTAINERS, "name", STATUS);
    to.push_str(r#"],"qosClass":"Burstable"}}"#);
    text
}

/// One object for each name, with commas between.
fn each(to: &mut String, names: &[&str], member: &str, rest: &str) {
    for (at, name) in names.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        put(to, format_args!(r#"{comma}{{"{member}":"{name}",{rest}"#));
    }
}

fn put(to: &mut String, text: std::fmt::Arguments<'_>) {
    to.write_fmt(text).expect("a string takes everything");
}

/// Pod `i` at a revision.
pub(crate) fn pod(i: u32, revision: u64, move_by: u32) -> Object {
    let body = Bytes::from(json(i, revision, move_by).into_bytes().into_boxed_slice());
    Object::parse(&Resource::pods(), body).expect("the generator makes valid pods")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_valid_and_about_nine_and_a_half_kilobytes() {
        for i in [0, 77, 1_999] {
            let text = json(i, 5, 0);
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["spec"]["nodeName"], node(i));
            assert!((9_200..9_700).contains(&text.len()), "{}", text.len());
        }
    }
}
