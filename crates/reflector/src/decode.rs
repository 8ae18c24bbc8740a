//! From bytes to pages and events (R13, R16).

use std::fmt;
use std::sync::Arc;

use masthead_core::{
    Bookmark, EventType, ListPage, Object, Resource, SplitError, Status, WatchLine, contain,
};
use tracing::{debug, error};

use crate::{Failure, Page, WatchItem};

/// Changes an object before anything is stored, for example by dropping what nobody reads.
type Transform = Arc<dyn Fn(Object) -> Object + Send + Sync>;

/// Reads the answers of a server for one resource.
///
/// The transform runs exactly once for each object, here, and whatever it returns is the object from
/// then on (R16). It must keep the key. An object whose transform panics, or changes the key, is skipped and
/// logged (R13). If it was deleted, its last state is skipped.
///
/// ```
/// use masthead_core::Resource;
/// use masthead_reflector::Decoder;
///
/// let decoder = Decoder::new(Resource::pods());
/// let page = decoder.page(br#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[
///     {"metadata":{"name":"web","namespace":"shop","resourceVersion":"7"}}, {"no":"pod"}]}"#)?;
/// assert_eq!((page.objects.len(), page.skipped), (1, 1));
/// # Ok::<(), masthead_reflector::Failure>(())
/// ```
#[derive(Clone)]
pub struct Decoder {
    resource: Resource,
    transform: Option<Transform>,
}

impl Decoder {
    /// Objects stay as they are.
    pub fn new(resource: Resource) -> Self {
        Self { resource, transform: None }
    }

    /// Every object passes through `transform`.
    pub fn with_transform(
        mut self,
        transform: impl Fn(Object) -> Object + Send + Sync + 'static,
    ) -> Self {
        self.transform = Some(Arc::new(transform));
        self
    }

    /// The body of a list's answer.
    pub fn page(&self, body: &[u8]) -> Result<Page, Failure> {
        let split = ListPage::split(body).map_err(|error| Failure::Decode(error.to_string()))?;
        let count = split.items.len();
        let items = split.items.into_iter();
        let objects: Vec<_> = items.filter_map(|at| self.object(&body[at])).collect();
        Ok(Page {
            skipped: count - objects.len(),
            objects,
            resource_version: split.resource_version,
            continue_token: split.continue_token,
            remaining: split.remaining,
        })
    }

    /// One item of a list that is taken apart as it arrives; none if it is not of this resource (R13).
    /// What is no JSON fails here as it would in [`Decoder::page`].
    pub fn item(&self, item: &[u8]) -> Result<Option<Object>, Failure> {
        let object = self.object(item);
        if object.is_none() {
            let list = [b"{\"items\":[", item, b"]}"].concat();
            match ListPage::split(&list) {
                Err(error) if !error.is_of_one_item() => {
                    return Err(Failure::Decode(error.to_string()));
                }
                _ => {}
            }
        }
        Ok(object)
    }

    /// One line of a watch. An event that is whole and cannot be used, such as one of an unknown type, is
    /// skipped (R13): a failure would break the watch at the same event again and again.
    pub fn line(&self, line: &[u8]) -> Result<WatchItem, Failure> {
        match self.plain_line(line) {
            Some(item) => Ok(item),
            None => self.any_line(line).or_else(|error| {
                if !error.is_of_one_item() {
                    return Err(Failure::Decode(error.to_string()));
                }
                debug!(resource = %self.resource, %error, "event skipped");
                Ok(WatchItem::Skipped)
            }),
        }
    }

    /// A line as servers write them: the type, the object, and nothing else. What is between the two
    /// ends is read only once: if it is one object of the resource, the line is whole.
    fn plain_line(&self, line: &[u8]) -> Option<WatchItem> {
        let rest = line.strip_prefix(b"{\"type\":\"")?;
        let quote = rest.iter().take("MODIFIED\"".len()).position(|&byte| byte == b'"')?;
        let (event, rest) = rest.split_at(quote);
        let object = rest.strip_prefix(b"\",\"object\":")?.trim_ascii_end().strip_suffix(b"}")?;
        let event = match event {
            b"ADDED" => EventType::Added,
            b"MODIFIED" => EventType::Modified,
            b"DELETED" => EventType::Deleted,
            _ => return None,
        };
        Some(self.change(event, self.parsed(object)?))
    }

    fn any_line(&self, line: &[u8]) -> Result<WatchItem, SplitError> {
        let WatchLine { event, object } = WatchLine::split(line)?;
        let object = &line[object];
        match event {
            EventType::Bookmark => {
                let Bookmark { resource_version, initial_events_end } = Bookmark::parse(object)?;
                Ok(WatchItem::Bookmark { resource_version, initial_events_end })
            }
            // What ends the stream ends it, readable or not.
            EventType::Error => Ok(WatchItem::Error(Status::of_response(500, object))),
            _ => {
                let object = self.parsed(object);
                Ok(object.map_or(WatchItem::Skipped, |object| self.change(event, object)))
            }
        }
    }

    /// The change that an event with this object stands for.
    fn change(&self, event: EventType, object: Object) -> WatchItem {
        if event == EventType::Deleted {
            // It is gone whatever became of its last state.
            let changed = self.transformed(object.clone());
            return changed.map_or(WatchItem::DeletedUnread(object), WatchItem::Deleted);
        }
        let made = if event == EventType::Added { WatchItem::Added } else { WatchItem::Modified };
        self.transformed(object).map_or(WatchItem::Skipped, made)
    }

    /// An object as it is to be held; none if it is skipped (R13).
    fn object(&self, text: &[u8]) -> Option<Object> {
        self.transformed(self.parsed(text)?)
    }

    /// An object of its own, so that it does not keep the answer's buffer alive; none if it is not of
    /// this resource.
    fn parsed(&self, text: &[u8]) -> Option<Object> {
        let object = Object::from_list_item(&self.resource, text);
        let skipped = |error: &_| debug!(resource = %self.resource, %error, "object skipped");
        object.inspect_err(skipped).ok()
    }

    /// What the transform makes of an object; none if it panics or changes the key.
    fn transformed(&self, object: Object) -> Option<Object> {
        let Some(transform) = &self.transform else { return Some(object) };
        let key = object.key().clone();
        let resource = &self.resource;
        match contain(|| transform(object)) {
            Ok(changed) if *changed.key() == key => return Some(changed),
            Ok(_) => error!(%resource, %key, "transform changed the key: object skipped"),
            Err(panic) if panic.is_reported() => {}
            Err(panic) => error!(%resource, %key, %panic, "transform panicked: object skipped"),
        }
        None
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Decoder").field(&self.resource).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{Class, Recovery};

    const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b","resourceVersion":"7"}}"#;

    fn line(event: &str, object: &str) -> Result<WatchItem, Failure> {
        let text = format!("{{\"type\":\"{event}\",\"object\":{object}}}\n");
        Decoder::new(Resource::pods()).line(text.as_bytes())
    }

    #[test]
    fn r13_other_kinds_are_skipped_and_broken_lines_are_failures() {
        assert!(matches!(line("ADDED", POD), Ok(WatchItem::Added(_))));
        let other = POD.replace("\"Pod\"", "\"Node\"");
        assert!(matches!(line("MODIFIED", &other), Ok(WatchItem::Skipped)));
        let cut = Decoder::new(Resource::pods()).line(b"{\"type\":\"ADDED\",\"obj");
        assert_eq!(cut.unwrap_err().class(), Class::Decode);
        assert_eq!(line("ADDED", &format!("{POD}}}")).unwrap_err().class(), Class::Decode);
        assert_eq!(line("ADDED", &format!("{POD},")).unwrap_err().class(), Class::Decode);
    }

    #[test]
    fn r13_an_event_that_cannot_be_used_is_skipped_and_does_not_break_the_watch() {
        let deep = [r#"{"a":"#.repeat(80), "1".to_owned(), "}".repeat(80)].concat();
        let unknown = [
            format!(r#"{{"type":"RENAMED","object":{POD}}}"#),
            format!(r#"{{"object":{POD}}}"#),
            r#"{"type":"ADDED"}"#.to_owned(),
            r#"{"type":"BOOKMARK","object":{"metadata":{}}}"#.to_owned(),
            format!(r#"{{"type":"MODIFIED","object":{{"kind":"Pod","spec":{deep}}}}}"#),
        ];
        for line in unknown {
            let read = Decoder::new(Resource::pods()).line(line.as_bytes());
            assert!(matches!(read, Ok(WatchItem::Skipped)), "{line}: {read:?}");
        }
    }

    #[test]
    fn a_line_is_read_the_same_however_it_is_written() {
        let decoder = Decoder::new(Resource::pods());
        let forms = [
            format!(r#"{{"type":"MODIFIED","object":{POD}}}"#),
            format!("{{\"type\":\"MODIFIED\",\"object\":{POD}}} \r\n"),
            format!(r#" {{ "type" : "MODIFIED" , "object" : {POD} }}"#),
            format!(r#"{{"object":{POD},"type":"MODIFIED"}}"#),
            format!(r#"{{"type":"MODIFIED","object":{POD},"more":{{}}}}"#),
        ];
        for form in forms {
            let Ok(WatchItem::Modified(object)) = decoder.line(form.as_bytes()) else {
                panic!("{form}")
            };
            assert_eq!(object.body(), POD, "{form}");
        }
        let twice = format!(r#"{{"type":"ADDED","object":{POD},"type":"DELETED"}}"#);
        assert!(matches!(decoder.line(twice.as_bytes()), Ok(WatchItem::Deleted(_))));
    }

    #[test]
    fn r13_an_item_of_another_kind_is_skipped_and_a_broken_one_is_a_failure() {
        let decoder = Decoder::new(Resource::pods());
        assert!(decoder.item(POD.as_bytes()).unwrap().is_some());
        assert!(decoder.item(br#"{"kind":"Node"}"#).unwrap().is_none());
        let deep = "[".repeat(80) + &"]".repeat(80);
        let deep = format!(r#"{{"a":{deep}}}"#);
        assert!(decoder.item(deep.as_bytes()).unwrap().is_none());
        for broken in [&b"{\"a\":tru}"[..], b"{\"a\":\"\xff\"}", b"{},{}]"] {
            assert_eq!(decoder.item(broken).unwrap_err().class(), Class::Decode);
        }
    }

    #[test]
    fn bookmarks_and_errors_are_told_apart() {
        let end = r#"{"kind":"Pod","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
        let WatchItem::Bookmark { resource_version, initial_events_end } =
            line("BOOKMARK", end).unwrap()
        else {
            panic!("no bookmark")
        };
        assert_eq!((resource_version.as_str(), initial_events_end), ("9", true));
        let gone = r#"{"kind":"Status","apiVersion":"v1","reason":"Expired","code":410}"#;
        let WatchItem::Error(status) = line("ERROR", gone).unwrap() else { panic!("no error") };
        assert_eq!(Failure::from(status).recovery(), Recovery::Relist);
    }

    #[test]
    fn r16_a_transform_runs_once_for_each_object() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let decoder = Decoder::new(Resource::pods()).with_transform(move |object| {
            counted.fetch_add(1, Ordering::Relaxed);
            object.with_revision(masthead_core::Revision(42))
        });
        let body = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{POD},{{}}]}}"#);
        let page = decoder.page(body.as_bytes()).unwrap();
        assert_eq!(page.objects[0].revision().0, 42);
        let text = format!(r#"{{"type":"DELETED","object":{POD}}}"#);
        assert!(matches!(decoder.line(text.as_bytes()), Ok(WatchItem::Deleted(_))));
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }
}
