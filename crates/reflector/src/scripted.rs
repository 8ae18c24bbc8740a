//! A source that answers as it was told. For tests.

use std::collections::VecDeque;
use std::future::{pending, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::source::{BoxFuture, Events};
use crate::{Failure, ListRequest, Meter, Page, Source, WatchItem, WatchRequest};

/// Answers requests in the order of its script and writes down what it was asked. A request beyond
/// the script's end is never answered. Clones are the same source.
///
/// ```
/// use masthead_reflector::{Failure, Page, Scripted};
///
/// let source = Scripted::new();
/// source.fail(Failure::Ended);
/// source.page(Page { resource_version: "7".into(), ..Page::default() });
/// let stream = source.stream();
/// assert!(stream.send(Vec::new()), "what is sent before the watch begins waits for it");
/// ```
#[derive(Clone, Default, Debug)]
pub struct Scripted(Arc<Mutex<Script>>);

#[derive(Default, Debug)]
struct Script {
    answers: VecDeque<Answer>,
    asked: Vec<String>,
    cancelled: u32,
}

#[derive(Debug)]
enum Answer {
    Page(Page),
    Failure(Failure),
    Stream(mpsc::UnboundedReceiver<Result<Vec<WatchItem>, Failure>>),
    Bytes(u64),
}

/// The sending end of a scripted watch. Dropping it ends the watch.
#[derive(Debug)]
pub struct ScriptedStream(mpsc::UnboundedSender<Result<Vec<WatchItem>, Failure>>);

impl Scripted {
    /// An empty script.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next request is answered with a page.
    pub fn page(&self, page: Page) {
        self.0.lock().answers.push_back(Answer::Page(page));
    }

    /// The next request fails.
    pub fn fail(&self, failure: Failure) {
        self.0.lock().answers.push_back(Answer::Failure(failure));
    }

    /// The next request gets so many bytes and no more.
    pub fn stall_after(&self, bytes: u64) {
        self.0.lock().answers.push_back(Answer::Bytes(bytes));
    }

    /// The next request is a watch that says what is sent here.
    pub fn stream(&self) -> ScriptedStream {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.lock().answers.push_back(Answer::Stream(receiver));
        ScriptedStream(sender)
    }

    /// What has been asked for: `list` or `watch`, resource version, token.
    pub fn asked(&self) -> Vec<String> {
        self.0.lock().asked.clone()
    }

    /// How many requests and streams were dropped before their end.
    pub fn cancelled(&self) -> u32 {
        self.0.lock().cancelled
    }

    fn next(&self, asked: String) -> Option<Answer> {
        let mut script = self.0.lock();
        script.asked.push(asked);
        script.answers.pop_front()
    }

    /// Never resolves, and tells when it is dropped.
    fn hang<T: 'static>(&self) -> BoxFuture<T> {
        let guard = Guard { script: self.clone(), over: false };
        Box::pin(async move {
            let _guard = guard;
            pending().await
        })
    }
}

impl ScriptedStream {
    /// Sends events; false if nobody listens any more.
    pub fn send(&self, items: Vec<WatchItem>) -> bool {
        self.0.send(Ok(items)).is_ok()
    }

    /// Ends the stream with a failure.
    pub fn fail(self, failure: Failure) -> bool {
        self.0.send(Err(failure)).is_ok()
    }
}

impl Source for Scripted {
    fn list(&self, request: ListRequest, meter: Meter) -> BoxFuture<Result<Page, Failure>> {
        let asked = match (request.at.resource_version(), request.at.continue_token()) {
            (_, Some(token)) => format!("list continue={token}"),
            (Some(version), None) => format!("list rv={version}"),
            (None, None) => "list".to_owned(),
        };
        match self.next(asked) {
            Some(Answer::Page(page)) => Box::pin(ready(Ok(page))),
            Some(Answer::Failure(failure)) => Box::pin(ready(Err(failure))),
            Some(Answer::Bytes(bytes)) => {
                meter.add(bytes);
                self.hang()
            }
            Some(Answer::Stream(_)) => panic!("a list, and the script has a watch"),
            None => self.hang(),
        }
    }

    fn watch(&self, request: WatchRequest, meter: Meter) -> BoxFuture<Result<Events, Failure>> {
        let initial = if request.initial_events() { " initial" } else { "" };
        match self.next(format!("watch rv={}{initial}", request.resource_version())) {
            Some(Answer::Stream(receiver)) => {
                let guard = Guard { script: self.clone(), over: false };
                let events: Events = Box::pin(Streaming { receiver, guard });
                Box::pin(ready(Ok(events)))
            }
            Some(Answer::Failure(failure)) => Box::pin(ready(Err(failure))),
            Some(Answer::Bytes(bytes)) => {
                meter.add(bytes);
                self.hang()
            }
            Some(Answer::Page(_)) => panic!("a watch, and the script has a page"),
            None => self.hang(),
        }
    }
}

/// Counts what is dropped too early.
#[derive(Debug)]
struct Guard {
    script: Scripted,
    over: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.script.0.lock().cancelled += u32::from(!self.over);
    }
}

#[derive(Debug)]
struct Streaming {
    receiver: mpsc::UnboundedReceiver<Result<Vec<WatchItem>, Failure>>,
    guard: Guard,
}

impl Stream for Streaming {
    type Item = Result<Vec<WatchItem>, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.receiver.poll_recv(cx);
        self.guard.over |= matches!(polled, Poll::Ready(None | Some(Err(_))));
        polled
    }
}
