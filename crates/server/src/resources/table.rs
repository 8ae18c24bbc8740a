//! The table of built-in resources.

/// One line: what discovery tells of a resource, and how writes treat it.
pub(super) struct Row {
    pub(super) group_version: &'static str,
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    pub(super) short_names: &'static str,
    /// Words: `cluster` (no namespaces), `status`, `scale`, `generation`, `all` (the category),
    /// `conditional` (a PUT must name a resource version).
    traits: &'static str,
}

impl Row {
    pub(super) fn has(&self, word: &str) -> bool {
        self.traits.split_whitespace().any(|it| it == word)
    }
}

const fn row(
    group_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    short_names: &'static str,
    traits: &'static str,
) -> Row {
    Row { group_version, plural, kind, short_names, traits }
}

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("v1", "configmaps", "ConfigMap", "cm", ""),
    row("v1", "endpoints", "Endpoints", "ep", ""),
    row("v1", "events", "Event", "ev", ""),
    row("v1", "limitranges", "LimitRange", "limits", ""),
    row("v1", "namespaces", "Namespace", "ns", "cluster status"),
    row("v1", "nodes", "Node", "no", "cluster status"),
    row("v1", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc", "status"),
    row("v1", "persistentvolumes", "PersistentVolume", "pv", "cluster status"),
    row("v1", "pods", "Pod", "po", "status generation all"),
    row("v1", "podtemplates", "PodTemplate", "", "generation"),
    row("v1", "replicationcontrollers", "ReplicationController", "rc", "status scale generation all"),
    row("v1", "resourcequotas", "ResourceQuota", "quota", "status"),
    row("v1", "secrets", "Secret", "", ""),
    row("v1", "serviceaccounts", "ServiceAccount", "sa", ""),
    row("v1", "services", "Service", "svc", "status all"),
    row("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "", "cluster generation"),
    row("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", "", "cluster status generation"),
    row("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", "", "cluster generation"),
    row("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "", "cluster generation"),
    row("apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", "crd crds", "cluster status generation"),
    row("apiregistration.k8s.io/v1", "apiservices", "APIService", "", "cluster status"),
    row("apps/v1", "controllerrevisions", "ControllerRevision", "", ""),
    row("apps/v1", "daemonsets", "DaemonSet", "ds", "status generation all"),
    row("apps/v1", "deployments", "Deployment", "deploy", "status scale generation all"),
    row("apps/v1", "replicasets", "ReplicaSet", "rs", "status scale generation all"),
    row("apps/v1", "statefulsets", "StatefulSet", "sts", "status scale generation all"),
    row("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa", "status all"),
    row("batch/v1", "cronjobs", "CronJob", "cj", "status generation all"),
    row("batch/v1", "jobs", "Job", "", "status generation all"),
    row("certificates.k8s.io/v1", "certificatesigningrequests", "CertificateSigningRequest", "csr", "cluster status"),
    row("coordination.k8s.io/v1", "leases", "Lease", "", ""),
    row("discovery.k8s.io/v1", "endpointslices", "EndpointSlice", "", "generation"),
    row("events.k8s.io/v1", "events", "Event", "ev", ""),
    row("flowcontrol.apiserver.k8s.io/v1", "flowschemas", "FlowSchema", "", "cluster status generation"),
    row("flowcontrol.apiserver.k8s.io/v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", "", "cluster status generation"),
    row("networking.k8s.io/v1", "ingressclasses", "IngressClass", "", "cluster generation"),
    row("networking.k8s.io/v1", "ingresses", "Ingress", "ing", "status generation"),
    row("networking.k8s.io/v1", "ipaddresses", "IPAddress", "ip", "cluster"),
    row("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", "netpol", "generation"),
    row("networking.k8s.io/v1", "servicecidrs", "ServiceCIDR", "", "cluster status"),
    row("node.k8s.io/v1", "runtimeclasses", "RuntimeClass", "", "cluster"),
    row("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", "pdb", "status generation"),
    row("rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding", "", "cluster"),
    row("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", "", "cluster"),
    row("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding", "", ""),
    row("rbac.authorization.k8s.io/v1", "roles", "Role", "", ""),
    row("resource.k8s.io/v1", "deviceclasses", "DeviceClass", "", "cluster generation"),
    row("resource.k8s.io/v1", "resourceclaims", "ResourceClaim", "", "status"),
    row("resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate", "", ""),
    row("resource.k8s.io/v1", "resourceslices", "ResourceSlice", "", "cluster generation"),
    row("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", "pc", "cluster generation"),
    row("storage.k8s.io/v1", "csidrivers", "CSIDriver", "", "cluster"),
    row("storage.k8s.io/v1", "csinodes", "CSINode", "", "cluster"),
    row("storage.k8s.io/v1", "csistoragecapacities", "CSIStorageCapacity", "", ""),
    row("storage.k8s.io/v1", "storageclasses", "StorageClass", "sc", "cluster"),
    row("storage.k8s.io/v1", "volumeattachments", "VolumeAttachment", "", "cluster status generation"),
    row("storage.k8s.io/v1", "volumeattributesclasses", "VolumeAttributesClass", "vac", "cluster"),
];
