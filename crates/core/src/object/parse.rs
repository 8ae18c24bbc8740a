//! One pass over a body that finds its head.

use super::{ABSENT, Extra, Head, OWNER_SPANS, ParseError, Span, Str, Strings, unescape};
use crate::Resource;
use crate::json::{JsonError, Scanner};
use crate::limits::{LABELS_MAX, OWNERS_MAX};
use crate::resource::FieldTree;

/// A head and the strings that go into the key.
pub(super) struct Parsed {
    pub(super) head: Head,
    pub(super) namespace: Span,
    pub(super) name: Span,
    pub(super) spans: Vec<Span>,
}

impl Parsed {
    /// So many bytes were put in right behind the first brace.
    pub(super) fn shift(&mut self, by: usize) {
        let by = u32::try_from(by).expect("kinds are short");
        let head = &mut self.head;
        head.metadata.start += by;
        head.resource_version_at.start += by;
        if head.strings().is_none() {
            let strings = [&mut head.uid, &mut head.deletion, &mut self.namespace, &mut self.name];
            let present = self.spans.iter_mut().filter(|span| **span != ABSENT);
            for span in strings.into_iter().chain(present) {
                span.start += by;
            }
        }
    }
}

/// Where the value of `apiVersion` stands, between its quotes, if the body is of this resource's kind and
/// group and of any version. Nothing if `kind` or `apiVersion` stands twice or has escapes, which no body
/// that was stored here has.
pub(super) fn version_span(resource: &Resource, text: &str) -> Option<Span> {
    let mut kind = Vec::new();
    let mut version = Vec::new();
    let mut scanner = Scanner::new(text);
    let walked = scanner.object(|scanner, key| {
        match key.span.of(text) {
            "kind" => kind.push(scanner.string()?),
            "apiVersion" => version.push(scanner.string()?),
            _ => drop(scanner.skip()?),
        }
        Ok(())
    });
    walked.ok()?;
    let ([kind], [version]) = (&*kind, &*version) else { return None };
    let group = version.span.of(text).rsplit_once('/').map_or("", |(group, _)| group);
    let same_type = kind.span.of(text) == resource.kind() && group == resource.group();
    (same_type && !kind.escaped && !version.escaped).then_some(version.span)
}

pub(super) fn head(resource: &Resource, text: &str) -> Result<Parsed, ParseError> {
    // Almost no body has escapes in the strings of its head. Where one has, all of them are taken
    // again into a text of their own.
    match Walk::new(resource, text, None).run()? {
        Outcome::Done(parsed) => Ok(parsed),
        Outcome::Escaped => match Walk::new(resource, text, Some(String::new())).run()? {
            Outcome::Done(parsed) => Ok(parsed),
            Outcome::Escaped => unreachable!("the second walk unescapes"),
        },
    }
}

enum Outcome {
    Done(Parsed),
    Escaped,
}

struct Walk<'a> {
    resource: &'a Resource,
    text: &'a str,
    /// Unescaped strings, if this is the second walk.
    owned: Option<String>,
    saw_escape: bool,
    head: Head,
    kind: Option<Span>,
    api_version: Option<Span>,
    namespace: Span,
    name: Span,
    resource_version: Span,
    saw_metadata: bool,
    labels: Vec<Span>,
    owners: Vec<Span>,
    /// For each selectable field the value found and its path's rank.
    fields: Vec<(Span, usize)>,
}

impl<'a> Walk<'a> {
    fn new(resource: &'a Resource, text: &'a str, owned: Option<String>) -> Self {
        Self {
            resource,
            text,
            owned,
            saw_escape: false,
            head: Head::default(),
            kind: None,
            api_version: None,
            namespace: Span::default(),
            name: Span::default(),
            resource_version: Span::default(),
            saw_metadata: false,
            labels: Vec::with_capacity(16),
            owners: Vec::new(),
            fields: vec![(ABSENT, usize::MAX); resource.fields().len()],
        }
    }

    fn run(mut self) -> Result<Outcome, ParseError> {
        let mut scanner = Scanner::new(self.text);
        let tree = self.resource.field_tree();
        scanner.object(|scanner, key| {
            match key.span.of(self.text) {
                "kind" => self.kind = Some(self.string(scanner)?),
                "apiVersion" => self.api_version = Some(self.string(scanner)?),
                "metadata" => self.metadata(scanner)?,
                name => self.selectable(scanner, tree.child(name))?,
            }
            Ok(())
        })?;
        scanner.end()?;
        if self.saw_escape {
            return Ok(Outcome::Escaped);
        }
        if !self.saw_metadata {
            return Err(ParseError::Json { what: "no metadata", at: 0 });
        }
        self.check_kind()?;
        self.finish().map(Outcome::Done)
    }

    fn check_kind(&mut self) -> Result<(), ParseError> {
        let strings = self.owned.as_deref().unwrap_or(self.text);
        let kind = self.kind.map(|span| span.of(strings)).filter(|kind| !kind.is_empty());
        let version = self.api_version.map(|span| span.of(strings)).filter(|v| !v.is_empty());
        self.head.kind_missing = self.kind.is_none() && self.api_version.is_none();
        let (resource, absent) = (self.resource, self.head.kind_missing);
        if absent || (kind, version) == (Some(resource.kind()), Some(resource.api_version())) {
            return Ok(());
        }
        let found = format!("{}/{}", version.unwrap_or("?"), kind.unwrap_or("?"));
        let expected = format!("{}/{}", resource.api_version(), resource.kind());
        Err(ParseError::WrongKind { expected, found })
    }

    fn finish(mut self) -> Result<Parsed, ParseError> {
        let count = |what, n: usize, limit: usize| {
            let fits = u16::try_from(n).ok().filter(|_| n <= limit);
            fits.ok_or(ParseError::TooLarge { what, limit })
        };
        self.head.labels = count("labels", self.labels.len() / 2, LABELS_MAX)?;
        self.head.owners = count("owner references", self.owners.len() / OWNER_SPANS, OWNERS_MAX)?;
        let mut spans = self.labels;
        spans.extend(self.fields.iter().map(|(span, _)| *span));
        spans.append(&mut self.owners);
        let resource_version = self.resource_version;
        self.head.extra = self.owned.map(|text| {
            let strings = Some(Strings { text: text.into(), resource_version, common: None });
            Box::new(Extra { strings, content: None })
        });
        Ok(Parsed { head: self.head, namespace: self.namespace, name: self.name, spans })
    }

    /// A string's value; empty for `null`, as a typed reader would have it.
    fn string(&mut self, scanner: &mut Scanner<'a>) -> Result<Span, JsonError> {
        if scanner.null()? {
            return Ok(Span::default());
        }
        let found = scanner.string()?;
        self.value(found)
    }

    fn value(&mut self, Str { span, escaped }: Str) -> Result<Span, JsonError> {
        let Some(owned) = &mut self.owned else {
            self.saw_escape |= escaped;
            return Ok(span);
        };
        let start = owned.len();
        let content = span.of(self.text);
        if escaped {
            let at = span.start as usize;
            owned.push_str(
                &unescape(content).ok_or(JsonError { what: "escapes name no character", at })?,
            );
        } else {
            owned.push_str(content);
        }
        Ok(Span::new(start, owned.len()))
    }

    fn metadata(&mut self, scanner: &mut Scanner<'a>) -> Result<(), JsonError> {
        self.saw_metadata = true;
        // Of two the last counts, and nothing of the first: splices go into the last.
        self.head = Head::default();
        (self.name, self.namespace) = (Span::default(), Span::default());
        self.labels.clear();
        self.owners.clear();
        let span = scanner.object(|scanner, key| {
            match key.span.of(scanner.text()) {
                "name" => self.name = self.string(scanner)?,
                "namespace" => self.namespace = self.string(scanner)?,
                "uid" => self.head.uid = self.string(scanner)?,
                "deletionTimestamp" => self.head.deletion = self.string(scanner)?,
                "resourceVersion" => self.resource_version(scanner)?,
                "labels" => self.labels(scanner)?,
                "ownerReferences" => self.owners(scanner)?,
                _ => drop(scanner.skip()?),
            }
            Ok(())
        })?;
        self.head.metadata = span;
        if !self.head.has_resource_version {
            let inside = span.start as usize + 1;
            self.head.resource_version_at = Span::new(inside, inside);
            self.resource_version = Span::default();
        }
        Ok(())
    }

    fn resource_version(&mut self, scanner: &mut Scanner<'a>) -> Result<(), JsonError> {
        let found = scanner.string()?;
        self.head.has_resource_version = true;
        self.head.resource_version_at = found.span;
        self.resource_version = self.value(found)?;
        Ok(())
    }

    fn labels(&mut self, scanner: &mut Scanner<'a>) -> Result<(), JsonError> {
        self.labels.clear();
        if scanner.null()? {
            return Ok(());
        }
        scanner.object(|scanner, key| {
            let key = self.value(key)?;
            let value = self.string(scanner)?;
            self.labels.extend([key, value]);
            Ok(())
        })?;
        Ok(())
    }

    fn owners(&mut self, scanner: &mut Scanner<'a>) -> Result<(), JsonError> {
        self.owners.clear();
        self.head.controller = 0;
        if scanner.null()? {
            return Ok(());
        }
        scanner.array(|scanner| {
            let mut spans = [Span::default(); OWNER_SPANS];
            let mut controller = false;
            scanner.object(|scanner, key| {
                match key.span.of(scanner.text()) {
                    "apiVersion" => spans[0] = self.string(scanner)?,
                    "kind" => spans[1] = self.string(scanner)?,
                    "name" => spans[2] = self.string(scanner)?,
                    "uid" => spans[3] = self.string(scanner)?,
                    "controller" => controller = scanner.skip()?.of(self.text) == "true",
                    _ => drop(scanner.skip()?),
                }
                Ok(())
            })?;
            self.owners.extend(spans);
            if controller {
                let position = self.owners.len() / OWNER_SPANS;
                self.head.controller = u16::try_from(position).unwrap_or(0);
            }
            Ok(())
        })
    }

    /// Walks into a part of the body that holds selectable fields; passes over all others.
    fn selectable(
        &mut self,
        scanner: &mut Scanner<'a>,
        node: Option<&FieldTree>,
    ) -> Result<(), JsonError> {
        let Some(node) = node else {
            return scanner.skip().map(drop);
        };
        let value = match scanner.peek() {
            Some(b'{') if !node.children.is_empty() => {
                scanner.object(|scanner, key| {
                    self.selectable(scanner, node.child(key.span.of(self.text)))
                })?;
                return Ok(());
            }
            Some(b'{' | b'[') => return scanner.skip().map(drop),
            Some(b'"') => self.string(scanner)?,
            _ if scanner.null()? => return Ok(()),
            _ => {
                let span = scanner.skip()?;
                self.value(Str { span, escaped: false })?
            }
        };
        for &(field, rank) in &node.fields {
            // An empty value leaves the place to the field's next path.
            let current = &mut self.fields[field];
            if rank < current.1 && (value.len > 0 || current.0 == ABSENT) {
                *current = (value, if value.len > 0 { rank } else { usize::MAX });
            }
        }
        Ok(())
    }
}
