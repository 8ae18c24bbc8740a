//! The documents of discovery (W29): both forms, as far as they are used.

use serde::{Deserialize, Deserializer};

use super::{Served, resource};

/// A group and a version that plain discovery has a document for.
#[derive(Clone, Debug)]
pub(super) struct GroupVersion {
    group: String,
    version: String,
    preferred: bool,
}

impl GroupVersion {
    pub(super) fn path(&self) -> String {
        match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }
}

/// Returns `true` if the document has the aggregated form.
pub(super) fn aggregated(document: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        kind: String,
    }
    serde_json::from_slice::<Kind>(document).is_ok_and(|it| it.kind == "APIGroupDiscoveryList")
}

/// Go writes what is empty as `null`.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// `APIGroupDiscoveryList`.
#[derive(Deserialize)]
pub(super) struct AggregatedGroups {
    #[serde(default, deserialize_with = "nullable")]
    items: Vec<AggregatedGroup>,
}

#[derive(Deserialize)]
struct AggregatedGroup {
    #[serde(default)]
    metadata: Meta,
    /// The preferred one comes first.
    #[serde(default, deserialize_with = "nullable")]
    versions: Vec<AggregatedVersion>,
}

#[derive(Default, Deserialize)]
struct Meta {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct AggregatedVersion {
    version: String,
    #[serde(default, deserialize_with = "nullable")]
    resources: Vec<AggregatedResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    resource: String,
    #[serde(default, deserialize_with = "nullable")]
    response_kind: ResponseKind,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    singular_resource: String,
    #[serde(flatten)]
    common: Common,
}

#[derive(Default, Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

/// What both forms have alike.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Common {
    #[serde(default, deserialize_with = "nullable")]
    short_names: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    verbs: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    categories: Vec<String>,
}

impl AggregatedGroups {
    pub(super) fn served(self) -> impl Iterator<Item = Served> {
        self.items.into_iter().flat_map(|group| {
            let name = group.metadata.name;
            group.versions.into_iter().enumerate().flat_map(move |(rank, it)| {
                let (group, version) = (name.clone(), it.version);
                it.resources.into_iter().map(move |it| it.served(&group, &version, rank == 0))
            })
        })
    }
}

impl AggregatedResource {
    fn served(self, group: &str, version: &str, preferred: bool) -> Served {
        let namespaced = self.scope == "Namespaced";
        Served {
            resource: resource(
                group,
                version,
                &self.resource,
                &self.response_kind.kind,
                namespaced,
            ),
            singular: self.singular_resource,
            short_names: self.common.short_names,
            verbs: self.common.verbs,
            categories: self.common.categories,
            preferred,
        }
    }
}

/// `APIVersions`.
#[derive(Deserialize)]
pub(super) struct LegacyVersions {
    #[serde(default, deserialize_with = "nullable")]
    versions: Vec<String>,
}

impl LegacyVersions {
    pub(super) fn group_versions(self) -> impl Iterator<Item = GroupVersion> {
        let versions = self.versions.into_iter().enumerate();
        versions.map(|(rank, version)| GroupVersion {
            group: String::new(),
            version,
            preferred: rank == 0,
        })
    }
}

/// `APIGroupList`.
#[derive(Deserialize)]
pub(super) struct Groups {
    #[serde(default, deserialize_with = "nullable")]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    #[serde(default, deserialize_with = "nullable")]
    versions: Vec<Version>,
    #[serde(default, deserialize_with = "nullable")]
    preferred_version: Version,
}

#[derive(Default, Deserialize)]
struct Version {
    #[serde(default)]
    version: String,
}

impl Groups {
    pub(super) fn group_versions(self) -> impl Iterator<Item = GroupVersion> {
        self.groups.into_iter().flat_map(|Group { name, versions, preferred_version }| {
            versions.into_iter().map(move |it| GroupVersion {
                group: name.clone(),
                preferred: it.version == preferred_version.version,
                version: it.version,
            })
        })
    }
}

/// `APIResourceList`.
#[derive(Deserialize)]
pub(super) struct PlainResources {
    #[serde(default, deserialize_with = "nullable")]
    resources: Vec<PlainResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlainResource {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    singular_name: String,
    #[serde(flatten)]
    common: Common,
}

impl PlainResources {
    pub(super) fn served(self, of: &GroupVersion) -> Vec<Served> {
        let main = self.resources.into_iter().filter(|it| !it.name.contains('/'));
        let served = main.map(|it| Served {
            resource: resource(&of.group, &of.version, &it.name, &it.kind, it.namespaced),
            singular: it.singular_name,
            short_names: it.common.short_names,
            verbs: it.common.verbs,
            categories: it.common.categories,
            preferred: of.preferred,
        });
        served.collect()
    }
}
