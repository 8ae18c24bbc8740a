//! Leaving out what nobody reads, before it is stored (R16).

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// Which fields of an object are kept. Paths are dotted: `metadata.managedFields`.
///
/// ```
/// use masthead_informer::Projection;
///
/// let projection = Projection::dropping(["metadata.managedFields", "status"]);
/// let body = r#"{"metadata":{"name":"a","managedFields":[{}]},"spec":{"x":1},"status":{}}"#;
/// let kept = projection.apply(body.as_bytes()).unwrap();
/// assert_eq!(kept, br#"{"metadata":{"name":"a"},"spec":{"x":1}}"#);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Projection {
    root: Node,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
struct Node {
    children: BTreeMap<String, Node>,
    rule: Rule,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
enum Rule {
    /// What is not named stays.
    #[default]
    KeepOthers,
    /// What is not named goes.
    DropOthers,
    /// The whole of it stays.
    Keep,
    /// The whole of it goes.
    Drop,
}

/// What every object keeps, since caches and handlers live by it.
const HEAD: [&str; 9] = [
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.resourceVersion",
    "metadata.labels",
    "metadata.ownerReferences",
    "metadata.deletionTimestamp",
];

impl Projection {
    /// Everything but these. What identifies an object stays whatever is named.
    pub fn dropping<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let mut root = Node::default();
        for path in paths {
            if !HEAD.iter().any(|head| head == &path || head.starts_with(&format!("{path}."))) {
                root.at(path, Rule::KeepOthers).rule = Rule::Drop;
            }
        }
        Self { root }
    }

    /// Only these and what identifies an object.
    pub fn keeping<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let mut root = Node { rule: Rule::DropOthers, ..Node::default() };
        for path in paths.into_iter().chain(HEAD) {
            root.at(path, Rule::DropOthers).rule = Rule::Keep;
        }
        Self { root }
    }

    /// Returns `true` if the projection keeps everything.
    pub fn is_everything(&self) -> bool {
        self.root == Node::default()
    }

    /// The object without what is left out.
    pub fn apply(&self, body: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
        let mut out = Vec::with_capacity(body.len());
        self.root.write(serde_json::from_slice(body)?, &mut out)?;
        Ok(out)
    }
}

impl Node {
    fn at(&mut self, path: &str, rule: Rule) -> &mut Self {
        path.split('.').fold(self, |node, step| {
            // A longer path below one that is kept whole says nothing new.
            let fresh = || Self { rule, ..Self::default() };
            node.children.entry(step.to_owned()).or_insert_with(fresh)
        })
    }

    fn write(&self, value: &RawValue, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let text = value.get();
        if self.rule == Rule::Keep || !text.starts_with('{') {
            out.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        let members: Members<'_> = serde_json::from_str(text)?;
        out.push(b'{');
        let mut first = true;
        for (name, member) in members.0 {
            let child = self.children.get(&*name);
            let rules = (child.map(|child| child.rule), self.rule);
            if matches!(rules, (Some(Rule::Drop), _) | (None, Rule::DropOthers)) {
                continue;
            }
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            serde_json::to_writer(&mut *out, &name)?;
            out.push(b':');
            match child {
                Some(child) => child.write(member, out)?,
                None => out.extend_from_slice(member.get().as_bytes()),
            }
        }
        out.push(b'}');
        Ok(())
    }
}

/// The members of an object in their order, unread.
struct Members<'a>(Vec<(std::borrow::Cow<'a, str>, &'a RawValue)>);

impl<'de> serde::Deserialize<'de> for Members<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// A member's name, borrowed where it has no escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = r#"{"kind":"Pod","metadata":{"name":"a","uid":"u","managedFields":[1],"annotations":{"x":"y"}},"spec":{"nodeName":"n","containers":[{}]},"status":{"phase":"Running"}}"#;

    fn apply(projection: &Projection) -> String {
        String::from_utf8(projection.apply(BODY.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn keeping_keeps_what_is_named_and_what_identifies() {
        let kept = apply(&Projection::keeping(["spec.nodeName", "status"]));
        assert_eq!(
            kept,
            r#"{"kind":"Pod","metadata":{"name":"a","uid":"u"},"spec":{"nodeName":"n"},"status":{"phase":"Running"}}"#
        );
    }

    #[test]
    fn what_identifies_an_object_cannot_be_dropped() {
        let all = Projection::dropping(["metadata", "metadata.name", "kind", "metadata.labels"]);
        assert_eq!(apply(&all), BODY);
        assert!(Projection::dropping([]).is_everything());
    }

    #[test]
    fn what_is_no_object_is_an_error_or_stays() {
        assert!(Projection::dropping(["a"]).apply(b"{").is_err());
        let kept = Projection::keeping(["metadata.name.x"]).apply(br#"{"metadata":{"name":"a"}}"#);
        assert_eq!(kept.unwrap(), br#"{"metadata":{"name":"a"}}"#);
    }
}
