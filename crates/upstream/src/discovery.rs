//! What a server serves.

use masthead_core::{Resource, Scope};
use masthead_reflector::{Class, Failure};
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::Upstream;
use crate::limits::{GROUP_VERSIONS_MAX, NEAR_MATCHES};

mod documents;

use documents::{
    AggregatedGroups, GroupVersion, Groups, LegacyVersions, PlainResources, aggregated,
};

/// Aggregated discovery where the server has it (W29), plain otherwise.
const EITHER: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// A resource that a server serves, and what it is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Served {
    /// Group, version, plural, kind and scope. Of the fields that selectors may name only those of pods
    /// are known: discovery does not tell them.
    pub resource: Resource,
    /// What one of them is called, for example `pod`; may be empty.
    pub singular: String,
    /// For example `po`.
    pub short_names: Vec<String>,
    /// What can be done with it, for example `list`.
    pub verbs: Vec<String>,
    /// Groups of resources that it belongs to, for example `all`.
    pub categories: Vec<String>,
    /// Whether its version is the one that the group prefers.
    pub preferred: bool,
}

/// Why a resource was not found.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// The server could not be asked.
    #[error("the server does not tell what it serves")]
    Failed(#[from] Failure),
    /// Nothing is called so.
    #[error("the server has no resource {name:?}{}", did_you_mean(.near))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What is called almost so.
        near: Vec<String>,
    },
    /// Several are called so.
    #[error("{name:?} may be any of {}: name the group too", .candidates.join(", "))]
    Ambiguous {
        /// What was asked for.
        name: String,
        /// What is called so, by its full name.
        candidates: Vec<String>,
    },
}

fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() {
        return ": `kubectl api-resources` lists what it has".to_owned();
    }
    format!(": did you mean {}?", near.join(", "))
}

impl Served {
    fn answers_to(&self, name: &str) -> bool {
        let same = |it: &str| it.eq_ignore_ascii_case(name);
        same(self.resource.plural())
            || same(&self.singular)
            || same(self.resource.kind())
            || self.short_names.iter().any(|it| same(it))
    }
}

impl Upstream {
    /// All resources that the server serves, in all versions, without subresources. Groups whose own
    /// server does not answer are left out.
    pub async fn discover(&self) -> Result<Vec<Served>, Failure> {
        let legacy = self.get_as("/api", EITHER).await?;
        let named = self.get_as("/apis", EITHER).await?;
        let mut served = Vec::new();
        let mut missing = Vec::new();
        if aggregated(&legacy) {
            served.extend(read::<AggregatedGroups>(&legacy)?.served());
        } else {
            missing.extend(read::<LegacyVersions>(&legacy)?.group_versions());
        }
        if aggregated(&named) {
            served.extend(read::<AggregatedGroups>(&named)?.served());
        } else {
            missing.extend(read::<Groups>(&named)?.group_versions());
        }
        for version in missing.iter().take(GROUP_VERSIONS_MAX) {
            served.extend(self.discover_version(version).await?);
        }
        Ok(served)
    }

    /// One version of one group. An aggregated API that is down does not take the others with it.
    async fn discover_version(&self, version: &GroupVersion) -> Result<Vec<Served>, Failure> {
        match self.get(&version.path()).await {
            Ok(document) => Ok(read::<PlainResources>(&document)?.served(version)),
            Err(failure) if matches!(failure.class(), Class::Unauthorized | Class::Refused) => {
                Err(failure)
            }
            Err(failure) => {
                warn!(path = version.path(), %failure, "part of what is served stays unknown");
                Ok(Vec::new())
            }
        }
    }

    /// The resource that somebody means: `pods`, `po`, `pod`, `Pod`, `deployments.apps`,
    /// `deployments.v1.apps`. Without a version it is the preferred one of its group; without a group the
    /// core group comes first, as with kubectl.
    pub async fn find(&self, name: &str) -> Result<Served, FindError> {
        pick(name, &self.discover().await?)
    }

    /// Finds each of several names as [`Upstream::find`] does, with one discovery for all.
    pub async fn find_each(
        &self,
        names: &[&str],
    ) -> Result<Vec<Result<Served, FindError>>, Failure> {
        let served = self.discover().await?;
        Ok(names.iter().map(|name| pick(name, &served)).collect())
    }
}

fn read<T: DeserializeOwned>(document: &[u8]) -> Result<T, Failure> {
    let broken = |error| Failure::Decode(format!("discovery: {error}"));
    serde_json::from_slice(document).map_err(broken)
}

fn pick(name: &str, served: &[Served]) -> Result<Served, FindError> {
    let mut found: Vec<_> = served.iter().filter(|it| is_meant(it, name)).collect();
    // The group's preferred version, or else the first that it names.
    let mut groups = Vec::new();
    found.sort_by_key(|it| !it.preferred);
    found.retain(|it| {
        let group = it.resource.group();
        let first = !groups.contains(&group);
        groups.push(group);
        first
    });
    let core = found.iter().position(|it| it.resource.group().is_empty());
    match (core, &*found) {
        (Some(at), _) => Ok(found[at].clone()),
        (None, []) => Err(FindError::Unknown { name: name.to_owned(), near: near(name, served) }),
        (None, [only]) => Ok((*only).clone()),
        (None, many) => {
            let candidates = many.iter().map(|it| it.resource.to_string()).collect();
            Err(FindError::Ambiguous { name: name.to_owned(), candidates })
        }
    }
}

/// Returns `true` if `name`, `name.group` or `name.version.group` names this resource.
fn is_meant(served: &Served, name: &str) -> bool {
    let resource = &served.resource;
    let Some((short, rest)) = name.split_once('.') else { return served.answers_to(name) };
    let group = resource.group();
    let versioned = rest.split_once('.').unwrap_or((rest, ""));
    served.answers_to(short) && (rest == group || versioned == (resource.version(), group))
}

/// What is called almost so, best first.
fn near(name: &str, served: &[Served]) -> Vec<String> {
    let wanted = name.split('.').next().unwrap_or(name).to_lowercase();
    let mut close: Vec<_> = served
        .iter()
        .filter_map(|it| {
            let names = [it.resource.plural(), &it.singular].map(str::to_owned);
            let names = names.iter().chain(&it.short_names).filter(|it| !it.is_empty());
            let best = names.map(|it| distance(&wanted, it)).min()?;
            (best <= 1 + wanted.len() / 4).then(|| (best, it.resource.to_string()))
        })
        .collect();
    close.sort();
    close.dedup();
    close.into_iter().map(|(_, name)| name).take(NEAR_MATCHES).collect()
}

/// How many letters have to be changed, left out or put in (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in b.iter().enumerate() {
            let other = corner + usize::from(a != *b);
            corner = row[j + 1];
            row[j + 1] = other.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// A resource as core knows it.
fn resource(group: &str, version: &str, plural: &str, kind: &str, namespaced: bool) -> Resource {
    let scope = if namespaced { Scope::Namespaced } else { Scope::Cluster };
    let found = Resource::new(group, version, plural, kind, scope);
    if found == Resource::pods() { Resource::pods() } else { found }
}

#[cfg(test)]
mod tests;
