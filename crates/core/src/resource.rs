//! Kinds of objects.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::limits::SELECTABLE_FIELDS_MAX;

/// Whether a resource's objects live in namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// Objects have a namespace.
    Namespaced,
    /// Objects belong to the whole cluster.
    Cluster,
}

/// A field beyond `metadata.name` and `metadata.namespace` that field selectors may name (W27).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SelectableField {
    /// What selectors call it, for example `spec.nodeName`.
    pub label: String,
    /// Where it is in the object; the first path with a value counts.
    pub paths: Vec<String>,
    /// What it is taken to be where the object does not have it.
    pub default: String,
}

impl SelectableField {
    /// A field that is called by its path and is empty where absent.
    pub fn at(path: &str) -> Self {
        Self { label: path.to_owned(), paths: vec![path.to_owned()], default: String::new() }
    }

    /// The same with another value where absent.
    pub fn or(mut self, default: &str) -> Self {
        default.clone_into(&mut self.default);
        self
    }
}

/// A kind of object that a server serves: group, version, plural, kind, scope, selectable fields.
///
/// Cheap to clone.
#[derive(Clone)]
pub struct Resource(Arc<Inner>);

struct Inner {
    group: String,
    version: String,
    plural: String,
    kind: String,
    api_version: String,
    scope: Scope,
    fields: Vec<SelectableField>,
    paths: FieldTree,
}

/// The selectable paths as a tree, walked beside the body by the head's parser.
#[derive(Default, Debug)]
pub(crate) struct FieldTree {
    pub(crate) name: String,
    /// Which fields end here, with the rank of this path among the field's paths.
    pub(crate) fields: Vec<(usize, usize)>,
    pub(crate) children: Vec<FieldTree>,
}

impl FieldTree {
    fn new(fields: &[SelectableField]) -> Self {
        let mut root = Self::default();
        for (index, field) in fields.iter().enumerate() {
            for (rank, path) in field.paths.iter().enumerate() {
                let mut node = &mut root;
                for step in path.split('.') {
                    let at =
                        node.children.iter().position(|c| c.name == step).unwrap_or_else(|| {
                            node.children.push(Self { name: step.to_owned(), ..Self::default() });
                            node.children.len() - 1
                        });
                    node = &mut node.children[at];
                }
                node.fields.push((index, rank));
            }
        }
        root
    }

    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }
}

impl Resource {
    /// A resource without selectable fields of its own. The core group is `""`.
    pub fn new(group: &str, version: &str, plural: &str, kind: &str, scope: Scope) -> Self {
        let api_version =
            if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        Self(Arc::new(Inner {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            api_version,
            scope,
            fields: Vec::new(),
            paths: FieldTree::default(),
        }))
    }

    /// The same resource with these selectable fields.
    pub fn with_fields(&self, fields: Vec<SelectableField>) -> Self {
        assert!(fields.len() <= SELECTABLE_FIELDS_MAX, "too many selectable fields");
        let it = &self.0;
        Self(Arc::new(Inner {
            group: it.group.clone(),
            version: it.version.clone(),
            plural: it.plural.clone(),
            kind: it.kind.clone(),
            api_version: it.api_version.clone(),
            scope: it.scope,
            paths: FieldTree::new(&fields),
            fields,
        }))
    }

    /// Pods, with the fields that Kubernetes lets selectors name.
    pub fn pods() -> Self {
        let at = SelectableField::at;
        Self::new("", "v1", "pods", "Pod", Scope::Namespaced).with_fields(vec![
            at("spec.nodeName"),
            at("spec.restartPolicy"),
            at("spec.schedulerName"),
            at("spec.serviceAccountName"),
            at("spec.hostNetwork").or("false"),
            at("status.phase"),
            at("status.podIP"),
            at("status.nominatedNodeName"),
        ])
    }

    /// API group; empty for the core group.
    pub fn group(&self) -> &str {
        &self.0.group
    }

    /// API version within the group, for example `v1`.
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// What URLs call it, for example `pods`.
    pub fn plural(&self) -> &str {
        &self.0.plural
    }

    /// What objects call themselves, for example `Pod`.
    pub fn kind(&self) -> &str {
        &self.0.kind
    }

    /// `group/version`, or `version` for the core group.
    pub fn api_version(&self) -> &str {
        &self.0.api_version
    }

    /// Namespaced or not.
    pub fn scope(&self) -> Scope {
        self.0.scope
    }

    /// Fields beyond the two common ones that selectors may name.
    pub fn fields(&self) -> &[SelectableField] {
        &self.0.fields
    }

    /// Position of a selectable field by the name that selectors use.
    pub fn field_index(&self, label: &str) -> Option<usize> {
        self.0.fields.iter().position(|field| field.label == label)
    }

    pub(crate) fn field_tree(&self) -> &FieldTree {
        &self.0.paths
    }
}

impl PartialEq for Resource {
    /// The same group, version and plural.
    fn eq(&self, other: &Self) -> bool {
        (self.group(), self.version(), self.plural())
            == (other.group(), other.version(), other.plural())
    }
}

impl Eq for Resource {}

impl Hash for Resource {
    /// The parts that `==` compares.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.group(), self.version(), self.plural()).hash(state);
    }
}

impl fmt::Display for Resource {
    /// `pods`, `deployments.apps`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.plural())?;
        if self.group().is_empty() { Ok(()) } else { write!(f, ".{}", self.group()) }
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version(), self.plural())
    }
}
