//! Realistic pods: number `i` is the same every time.

use std::fmt::Write;

use bytes::Bytes;
use masthead_core::{Object, Resource};

const APPS: [&str; 8] =
    ["storefront", "checkout", "catalog", "inventory", "payments", "search", "notifier", "ledger"];
const ZONES: [&str; 3] = ["north-1a", "north-1b", "north-1c"];

/// How pods are spread.
const TEAMS: u32 = 40;
const NODES: u32 = 200;
const PODS_PER_OWNER: u32 = 3;

/// A number that looks random and is the same for the same `i` (splitmix64).
fn mix(i: u64) -> u64 {
    let mut z = i.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn uid(i: u64) -> String {
    let (a, b) = (mix(i), mix(i ^ 0xffff_0000));
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        b >> 52,
        b & 0xffff_ffff_ffff
    )
}

/// The node on which pod `i` stands; a `move_by` puts it elsewhere.
fn node(i: u32, move_by: u32) -> String {
    format!("worker-{:04}.north-1.compute.example.internal", (i.wrapping_mul(7) + move_by) % NODES)
}

/// Name of the label whose value is different for each pod.
pub(super) const UNIQUE_LABEL: &str = "example.com/pod";

/// Name of pod `i`, which is also the value of its [`UNIQUE_LABEL`].
pub(super) fn name(i: u32) -> String {
    let app = APPS[i as usize % APPS.len()];
    format!(
        "{app}-{:05}-{:010x}-{:05x}",
        i / PODS_PER_OWNER,
        mix(u64::from(i / PODS_PER_OWNER)) >> 24,
        i
    )
}

/// Namespace and name of pod `i`.
pub(super) fn key(i: u32) -> String {
    format!("team-{:02}/{}", i % TEAMS, name(i))
}

/// Pod `i` as JSON, about 9.4 KB: two containers, environment, volumes, conditions, owner,
/// managedFields.
pub(super) fn json(i: u32, revision: u64, move_by: u32) -> String {
    let app = APPS[i as usize % APPS.len()];
    let owner = i / PODS_PER_OWNER;
    let hash = format!("{:010x}", mix(u64::from(owner)) >> 24);
    let set = format!("{app}-{owner:05}-{hash}");
    let (name, team, zone) = (name(i), i % TEAMS, ZONES[i as usize % ZONES.len()]);
    let (uid, owner_uid) = (uid(u64::from(i)), uid(0x1_0000_0000 + u64::from(owner)));
    let checksum =
        format!("{:016x}{:016x}{:016x}{:016x}", mix(1), mix(2), mix(u64::from(owner)), mix(4));
    let ip = format!("10.{}.{}.{}", 100 + (i >> 16), (i >> 8) & 255, i & 255);
    let host = format!("10.0.{}.{}", (i % NODES) / 200, (i % NODES) % 200 + 4);
    let started = format!("2026-06-01T{:02}:{:02}:{:02}Z", i / 3600 % 24, i / 60 % 60, i % 60);
    let mut out = String::with_capacity(12_000);
    let w = &mut out;
    let _ = write!(
        w,
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","generateName":"{set}-","namespace":"team-{team:02}","uid":"{uid}","resourceVersion":"{revision}","generation":1,"creationTimestamp":"{started}","labels":{{"app.kubernetes.io/component":"server","app.kubernetes.io/instance":"{app}-{owner:05}","app.kubernetes.io/name":"{app}","app.kubernetes.io/part-of":"shop-{}","app.kubernetes.io/version":"v1.{}.{}","pod-template-hash":"{hash}","{UNIQUE_LABEL}":"{name}","topology.kubernetes.io/zone":"{zone}"}},"annotations":{{"checksum/config":"{checksum}","prometheus.io/path":"/metrics","prometheus.io/port":"8080","prometheus.io/scrape":"true"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"{set}","uid":"{owner_uid}","controller":true,"blockOwnerDeletion":true}}],"managedFields":["#,
        team % 4,
        i % 9,
        i % 13
    );
    managed_fields(w, &owner_uid, &started, &ip);
    let _ = write!(
        w,
        r#"]}},"spec":{{"volumes":[{{"name":"config","configMap":{{"name":"{app}-config","defaultMode":420}}}},{{"name":"tls","secret":{{"secretName":"{app}-tls","defaultMode":420}}}},{{"name":"scratch","emptyDir":{{}}}},{{"name":"kube-api-access-{:05x}","projected":{{"sources":[{{"serviceAccountToken":{{"expirationSeconds":3607,"path":"token"}}}},{{"configMap":{{"name":"kube-root-ca.crt","items":[{{"key":"ca.crt","path":"ca.crt"}}]}}}},{{"downwardAPI":{{"items":[{{"path":"namespace","fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.namespace"}}}}]}}}}],"defaultMode":420}}}}],"containers":["#,
        i & 0xf_ffff
    );
    container(
        w,
        "app",
        app,
        &format!("registry.example.com/shop/{app}:v1.{}.{}", i % 9, i % 13),
        i,
        8080,
    );
    w.push(',');
    w.push_str(r#"{"name":"proxy","image":"registry.example.com/mesh/sidecar-proxy:v1.31.2","args":["--listen=:15001"],"resources":{"limits":{"cpu":"200m","memory":"256Mi"},"requests":{"cpu":"50m","memory":"64Mi"}},"volumeMounts":[{"name":"tls","readOnly":true,"mountPath":"/etc/tls"},{"name":"scratch","mountPath":"/var/cache/app"}],"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}"#);
    let _ = write!(
        w,
        r#"],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"{app}","serviceAccount":"{app}","nodeName":"{}","securityContext":{{"runAsUser":1000,"runAsNonRoot":true,"fsGroup":1000}},"schedulerName":"default-scheduler","tolerations":[{{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}},{{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}},"status":{{"observedGeneration":1,"phase":"Running","conditions":["#,
        node(i, move_by)
    );
    for (at, kind) in
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
            .iter()
            .enumerate()
    {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(
            w,
            r#"{comma}{{"type":"{kind}","observedGeneration":1,"status":"True","lastProbeTime":null,"lastTransitionTime":"{started}"}}"#
        );
    }
    let _ = write!(
        w,
        r#"],"hostIP":"{host}","hostIPs":[{{"ip":"{host}"}}],"podIP":"{ip}","podIPs":[{{"ip":"{ip}"}}],"startTime":"{started}","containerStatuses":["#
    );
    for (at, (container, image)) in
        [("app", "shop/app"), ("proxy", "mesh/sidecar-proxy")].iter().enumerate()
    {
        let comma = if at > 0 { "," } else { "" };
        let digest = format!(
            "{:016x}{:016x}{:016x}{:016x}",
            mix(u64::from(i)),
            mix(5),
            mix(6),
            mix(at as u64)
        );
        let _ = write!(
            w,
            r#"{comma}{{"name":"{container}","state":{{"running":{{"startedAt":"{started}"}}}},"lastState":{{}},"ready":true,"restartCount":{},"image":"registry.example.com/{image}:v1.0.0","imageID":"registry.example.com/{image}@sha256:{digest}","containerID":"containerd://{digest}","started":true}}"#,
            revision % 7
        );
    }
    w.push_str(r#"],"qosClass":"Burstable"}}"#);
    out
}

fn managed_fields(w: &mut String, owner: &str, at: &str, ip: &str) {
    let env = |w: &mut String, names: &[&str]| {
        for name in names {
            let _ = write!(
                w,
                r#","k:{{\"name\":\"{name}\"}}":{{".":{{}},"f:name":{{}},"f:value":{{}}}}"#
            );
        }
    };
    let _ = write!(
        w,
        r#"{{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"{at}","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:annotations":{{".":{{}},"f:checksum/config":{{}},"f:prometheus.io/path":{{}},"f:prometheus.io/port":{{}},"f:prometheus.io/scrape":{{}}}},"f:generateName":{{}},"f:labels":{{".":{{}},"f:app.kubernetes.io/component":{{}},"f:app.kubernetes.io/instance":{{}},"f:app.kubernetes.io/name":{{}},"f:app.kubernetes.io/part-of":{{}},"f:app.kubernetes.io/version":{{}},"f:pod-template-hash":{{}}}},"f:ownerReferences":{{".":{{}},"k:{{\"uid\":\"{owner}\"}}":{{}}}}}},"f:spec":{{"f:containers":{{"#
    );
    for (at, container) in ["app", "proxy"].iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(
            w,
            r#"{comma}"k:{{\"name\":\"{container}\"}}":{{".":{{}},"f:args":{{}},"f:env":{{".":{{}}"#
        );
        env(w, &["LOG_LEVEL", "DB_HOST", "REDIS_URL", "POD_NAME", "POD_IP"]);
        w.push_str(r#"},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{},"f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{},"f:volumeMounts":{".":{},"k:{\"mountPath\":\"/etc/app\"}":{".":{},"f:mountPath":{},"f:name":{}}}}"#);
    }
    let _ = write!(
        w,
        r#"}},"f:dnsPolicy":{{}},"f:enableServiceLinks":{{}},"f:restartPolicy":{{}},"f:schedulerName":{{}},"f:securityContext":{{}},"f:serviceAccount":{{}},"f:serviceAccountName":{{}},"f:terminationGracePeriodSeconds":{{}},"f:volumes":{{".":{{}},"k:{{\"name\":\"config\"}}":{{".":{{}},"f:configMap":{{".":{{}},"f:defaultMode":{{}},"f:name":{{}}}},"f:name":{{}}}}}}}}}}}},{{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"{at}","fieldsType":"FieldsV1","fieldsV1":{{"f:status":{{"f:conditions":{{"#
    );
    for (at, kind) in
        ["ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready"].iter().enumerate()
    {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(
            w,
            r#"{comma}"k:{{\"type\":\"{kind}\"}}":{{".":{{}},"f:lastProbeTime":{{}},"f:lastTransitionTime":{{}},"f:status":{{}},"f:type":{{}}}}"#
        );
    }
    let _ = write!(
        w,
        r#"}},"f:containerStatuses":{{}},"f:hostIP":{{}},"f:hostIPs":{{}},"f:observedGeneration":{{}},"f:phase":{{}},"f:podIP":{{}},"f:podIPs":{{".":{{}},"k:{{\"ip\":\"{ip}\"}}":{{".":{{}},"f:ip":{{}}}}}},"f:startTime":{{}}}}}},"subresource":"status"}}"#
    );
}

fn container(w: &mut String, name: &str, app: &str, image: &str, i: u32, port: u32) {
    let _ = write!(
        w,
        r#"{{"name":"{name}","image":"{image}","args":["--listen=:{port}","--config=/etc/app/config.yaml","--cache-dir=/var/cache/app"],"ports":[{{"name":"http","containerPort":{port},"protocol":"TCP"}},{{"name":"metrics","containerPort":9090,"protocol":"TCP"}}],"env":[{{"name":"LOG_LEVEL","value":"info"}},{{"name":"DB_HOST","value":"postgres-primary.databases.svc.cluster.local"}},{{"name":"REDIS_URL","value":"redis://redis-main.cache.svc.cluster.local:6379/{}"}},{{"name":"OTEL_EXPORTER_OTLP_ENDPOINT","value":"http://otel-collector.observability.svc:4317"}},{{"name":"POD_NAME","valueFrom":{{"fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.name"}}}}}},{{"name":"POD_IP","valueFrom":{{"fieldRef":{{"apiVersion":"v1","fieldPath":"status.podIP"}}}}}},{{"name":"DB_PASSWORD","valueFrom":{{"secretKeyRef":{{"name":"{app}-db","key":"password"}}}}}}],"resources":{{"limits":{{"cpu":"500m","memory":"512Mi"}},"requests":{{"cpu":"100m","memory":"128Mi"}}}},"volumeMounts":[{{"name":"config","readOnly":true,"mountPath":"/etc/app"}},{{"name":"tls","readOnly":true,"mountPath":"/etc/tls"}},{{"name":"scratch","mountPath":"/var/cache/app"}},{{"name":"kube-api-access-{:05x}","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}}],"livenessProbe":{{"httpGet":{{"path":"/healthz","port":{port},"scheme":"HTTP"}},"initialDelaySeconds":5,"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent","securityContext":{{"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true,"capabilities":{{"drop":["ALL"]}}}}}}"#,
        i % 16,
        i & 0xf_ffff
    );
}

/// Pod `i` at a revision. A `move_by` puts it on another node, which changes an index value.
pub(super) fn pod(resource: &Resource, i: u32, revision: u64, move_by: u32) -> Object {
    let body = Bytes::copy_from_slice(json(i, revision, move_by).as_bytes());
    Object::parse(resource, body).expect("the generator makes valid pods")
}

/// The name of node `i` where there are as many as one wants.
pub(super) fn numbered_node(i: u32) -> String {
    format!("node-{i:06}")
}

/// Pod `i` on a node of any name.
pub(super) fn json_on(i: u32, node_name: &str) -> String {
    json(i, 1, 0).replace(&node(i, 0), node_name)
}

/// Pod `i` with next to nothing in it but an annotation that makes it as large as this.
pub(super) fn json_of(i: u32, bytes: usize) -> String {
    const END: &str = r#""}},"spec":{"containers":[{"name":"main","image":"main"}]}}"#;
    let mut pod = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{}","namespace":"team-{:02}","uid":"{}","resourceVersion":"1","annotations":{{"example.com/filling":""#,
        name(i),
        i % TEAMS,
        uid(u64::from(i))
    );
    let missing = bytes.saturating_sub(pod.len() + END.len());
    pod.extend((0..missing).map(|at| char::from(b'a' + (mix(at as u64) & 15) as u8)));
    pod.push_str(END);
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_valid_about_nine_and_a_half_kilobytes_and_always_the_same() {
        for i in [0, 1, 77, 99_999] {
            let text = json(i, 5, 0);
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["metadata"]["name"], name(i));
            assert!((9_200..9_700).contains(&text.len()), "{}", text.len());
            assert_eq!(text, json(i, 5, 0));
            assert_ne!(
                value["spec"]["nodeName"],
                serde_json::from_str::<serde_json::Value>(&json(i, 5, 1)).unwrap()["spec"]["nodeName"]
            );
        }
    }
}
