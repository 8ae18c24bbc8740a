//! Objects whose content is held in another form than JSON.

use std::any::Any;
use std::cmp::Reverse;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;

use super::{ABSENT, CommonStrings, Extra, Inner, Object, Span, Strings};

/// What holds the content of an object, and what it weighs.
#[derive(Clone)]
pub(super) struct Content {
    value: Arc<dyn Any + Send + Sync>,
    pub(super) bytes: usize,
    whole: Whole,
}

/// The body that is elsewhere: its length, and where things are in it.
#[derive(Clone, Copy)]
struct Whole {
    length: u32,
    metadata: Span,
    resource_version_at: Span,
    has_resource_version: bool,
}

/// The body of an object whose content is elsewhere, before and behind its digest.
const BODY: [&str; 2] = [r#"{"metadata":{"digest":""#, r#""}}"#];
/// Of a digest in hexadecimal.
const DIGEST_BYTES: usize = 16;
/// Right behind the brace of `metadata`: where a resource version would be put in.
const METADATA_AT: usize = r#"{"metadata":"#.len();

impl Object {
    /// The same head, with its content held as `content`, which counts as `bytes`. Of the body only a
    /// digest is left: two that are held so have equal bodies if their digests are equal.
    pub fn held_as(&self, content: Arc<dyn Any + Send + Sync>, bytes: usize, digest: u64) -> Self {
        self.held(content, bytes, digest, &CommonStrings::default())
    }

    /// The same; strings that many objects have are not kept with each. What is common is learned from
    /// those that come through here.
    pub fn held_with(
        &self,
        content: Arc<dyn Any + Send + Sync>,
        bytes: usize,
        digest: u64,
        common: &mut CommonStrings,
    ) -> Self {
        let present = self.spans().iter().filter(|span| **span != ABSENT);
        common.see(present.map(|span| self.text(*span)));
        self.held(content, bytes, digest, common)
    }

    fn held(
        &self,
        content: Arc<dyn Any + Send + Sync>,
        bytes: usize,
        digest: u64,
        common: &CommonStrings,
    ) -> Self {
        let it = self.inner();
        // Of just the size: `Bytes` would need another allocation to remember a larger one.
        let mut body = String::with_capacity(BODY[0].len() + DIGEST_BYTES + BODY[1].len());
        let _ = write!(body, "{}{digest:0DIGEST_BYTES$x}{}", BODY[0], BODY[1]);
        let mut head = it.head.clone();
        let whole = Whole {
            length: u32::try_from(it.body.len()).expect("bodies are limited below 4 GiB"),
            metadata: head.metadata,
            resource_version_at: head.resource_version_at,
            has_resource_version: head.has_resource_version,
        };
        let text = self.own_strings(common);
        let take = |string: &str| {
            common.place(string).unwrap_or_else(|| {
                let start = text.find(string).expect("what is not common is in the text");
                Span::new(start, start + string.len())
            })
        };
        head.uid = take(self.text(head.uid));
        head.deletion = take(self.text(head.deletion));
        let resource_version = take(it.resource_version());
        let again = |&span: &Span| if span == ABSENT { ABSENT } else { take(self.text(span)) };
        let spans: Vec<_> = self.spans().iter().map(again).collect();
        head.metadata = Span::new(METADATA_AT, body.len() - 1);
        head.resource_version_at = Span::new(METADATA_AT + 1, METADATA_AT + 1);
        head.has_resource_version = false;
        head.extra = Some(Box::new(Extra {
            strings: Some(Strings { text, resource_version, common: common.text() }),
            content: Some(Content { value: content, bytes, whole }),
        }));
        let (key, revision, created) = (it.key.clone(), it.revision, it.created);
        Self::of(Inner { body: body.into(), key, revision, created, head }, &spans)
    }

    /// The object as it was before [`Object::held_as`], with the body that it had then. Nothing is
    /// parsed. None if this cannot be that body.
    pub fn with_body(&self, body: Bytes) -> Option<Self> {
        let it = self.inner();
        let whole = it.head.content()?.whole;
        let body = ByteString::try_from(body).ok()?;
        let ends = [whole.metadata, whole.resource_version_at].map(|span| span.range().end);
        let is_that = body.len() == whole.length as usize
            && ends.iter().all(|&end| body.is_char_boundary(end))
            && body.is_char_boundary(whole.resource_version_at.range().start);
        if !is_that {
            return None;
        }
        let mut head = it.head.clone();
        head.metadata = whole.metadata;
        head.resource_version_at = whole.resource_version_at;
        head.has_resource_version = whole.has_resource_version;
        if let Some(extra) = &mut head.extra {
            extra.content = None;
        }
        let (key, revision, created) = (it.key.clone(), it.revision, it.created);
        Some(Self::of(Inner { body, key, revision, created, head }, self.spans()))
    }

    /// Bytes of the object as JSON, also where its content is held in another form.
    pub fn whole_bytes(&self) -> usize {
        let it = self.inner();
        it.head.content().map_or(it.body.len(), |content| content.whole.length as usize)
    }

    /// Bytes of its `metadata` as JSON, likewise.
    pub fn metadata_bytes(&self) -> usize {
        let head = &self.inner().head;
        head.content().map_or(head.metadata, |content| content.whole.metadata).range().len()
    }

    /// The content, if it is held as one of these.
    pub fn content<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.inner().head.content()?.value.clone().downcast().ok()
    }

    /// Returns `true` if the content is held in another form than JSON.
    pub fn is_held(&self) -> bool {
        self.inner().head.content().is_some()
    }

    /// Returns `true` if the content is held in another form and its body had this digest.
    pub fn has_digest(&self, digest: u64) -> bool {
        let hex = self.inner().body.get(BODY[0].len()..BODY[0].len() + DIGEST_BYTES);
        self.is_held() && hex.is_some_and(|hex| u64::from_str_radix(hex, 16) == Ok(digest))
    }

    /// The strings of the head that are not common, in one text. One that stands within another, as the
    /// names of owners do in those of pods, is there once.
    fn own_strings(&self, common: &CommonStrings) -> Box<str> {
        let it = self.inner();
        let present = self.spans().iter().filter(|span| **span != ABSENT);
        let heads = [self.text(it.head.uid), self.text(it.head.deletion), it.resource_version()];
        let all = heads.into_iter().chain(present.map(|span| self.text(*span)));
        let mut own: Vec<_> = all.filter(|string| common.place(string).is_none()).collect();
        own.sort_unstable_by_key(|string| Reverse(string.len()));
        let mut text = String::new();
        for string in own {
            if !text.contains(string) {
                text.push_str(string);
            }
        }
        text.into()
    }
}
