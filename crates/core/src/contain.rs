//! Calls of functions that a user gave. A panic in one ends that call and nothing else.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;

use crate::limits::PANIC_TEXT_BYTES_MAX;

/// A panic that was contained, as the text of its payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Panic {
    text: Box<str>,
    is_reported: bool,
}

impl Panic {
    /// The panic with this payload, for example that of a task that was joined. The text is cut at
    /// [`PANIC_TEXT_BYTES_MAX`].
    pub fn of_payload(payload: Box<dyn Any + Send>) -> Self {
        let payload = match payload.downcast::<Self>() {
            Ok(raised_again) => return *raised_again,
            Err(payload) => payload,
        };
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("a payload that is no text");
        let text = text[..text.floor_char_boundary(PANIC_TEXT_BYTES_MAX)].into();
        // The destructor of a payload is code of the user, too. What it panics with is not dropped.
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(another);
        }
        Self { text, is_reported: false }
    }

    /// The text that the panic was raised with.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it was logged and counted before it was raised again.
    pub fn is_reported(&self) -> bool {
        self.is_reported
    }

    /// Raises the panic again, for a caller that has to know of it and not to report it.
    pub fn raise_again(self) -> ! {
        resume_unwind(Box::new(Self { is_reported: true, ..self }))
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Panic {}

/// Calls a function that a user gave. A panic in it is returned.
///
/// ```
/// use masthead_core::contain;
///
/// assert_eq!(contain(|| 7), Ok(7));
/// let panic = contain(|| -> u8 { panic!("no {}", "number") }).unwrap_err();
/// assert_eq!(panic.text(), "no number");
/// ```
///
/// What the function captures is taken to be usable after a panic in it: it belongs to the user, who sees the
/// panic in the log. Without a panic this costs no allocation.
#[inline]
pub fn contain<T>(call: impl FnOnce() -> T) -> Result<T, Panic> {
    catch_unwind(AssertUnwindSafe(call)).map_err(Panic::of_payload)
}

/// Runs a future that a user gave. A panic in it is returned, and the future is not polled again.
///
/// `in_drop` receives the panic of a destructor: when the future is done, and also when what is returned is
/// dropped before that. Without a panic this costs no allocation.
pub async fn contain_future<T>(
    future: impl Future<Output = T>,
    in_drop: impl FnMut(&Panic),
) -> Result<T, Panic> {
    let mut held = Held { future: pin!(Some(future)), in_drop };
    poll_fn(|cx| {
        let future = held.future.as_mut().as_pin_mut();
        let future = future.expect("it is dropped only after this");
        match contain(|| future.poll(cx)) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

/// A future whose destructor is contained.
struct Held<'a, F, R: FnMut(&Panic)> {
    future: Pin<&'a mut Option<F>>,
    in_drop: R,
}

impl<F, R: FnMut(&Panic)> Drop for Held<'_, F, R> {
    fn drop(&mut self) {
        if let Err(panic) = contain(|| self.future.set(None)) {
            (self.in_drop)(&panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::{pending, ready};
    use std::task::{Context, Waker};

    use super::*;

    /// A value whose destructor panics.
    struct Bomb(&'static str);

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("{}", self.0);
        }
    }

    fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn the_text_of_a_payload_is_kept_whatever_the_payload_is() {
        let text = |call: fn()| contain(call).unwrap_err().to_string();
        assert_eq!(text(|| panic!("plain")), "plain");
        assert_eq!(text(|| panic!("{}", 7)), "7");
        assert_eq!(text(|| std::panic::panic_any(7)), "a payload that is no text");
        assert_eq!(text(|| std::panic::panic_any(Bomb("b"))), "a payload that is no text");
    }

    #[test]
    fn a_long_text_is_cut_at_the_limit() {
        let of = |bytes: usize| contain(|| panic!("{}", "x".repeat(bytes))).map(|()| 0);
        for bytes in [PANIC_TEXT_BYTES_MAX, PANIC_TEXT_BYTES_MAX + 1] {
            assert_eq!(of(bytes).unwrap_err().text().len(), PANIC_TEXT_BYTES_MAX);
        }
        assert_eq!(contain(|| panic!("{}", "ä".repeat(600))).map(|()| 0).unwrap_err().text(), {
            "ä".repeat(PANIC_TEXT_BYTES_MAX / 2)
        });
    }

    #[test]
    fn a_panic_that_is_raised_again_keeps_its_text_and_is_reported() {
        let first = contain(|| panic!("first")).map(|()| 0).unwrap_err();
        assert!(!first.is_reported());
        let second = contain(|| first.raise_again()).map(|()| 0).unwrap_err();
        assert_eq!((second.text(), second.is_reported()), ("first", true));
    }

    #[test]
    fn a_future_ends_with_its_value_or_its_panic() {
        let never = |panic: &Panic| panic!("{panic}");
        assert_eq!(poll_once(contain_future(ready(7), never)), Poll::Ready(Ok(7)));
        assert_eq!(poll_once(contain_future(pending::<u8>(), never)), Poll::Pending);
        let polled = poll_once(contain_future(async { panic!("polled") }, never));
        assert_eq!(polled.map(|it: Result<(), _>| it.unwrap_err().to_string()), {
            Poll::Ready("polled".to_owned())
        });
    }

    #[test]
    fn a_destructor_that_panics_is_contained_when_the_future_is_done_and_when_it_is_cancelled() {
        let seen = RefCell::new(Vec::new());
        let note = |panic: &Panic| seen.borrow_mut().push(panic.to_string());
        let cancelled = async {
            let _bomb = Bomb("cancelled");
            pending::<()>().await;
        };
        assert_eq!(poll_once(contain_future(cancelled, note)), Poll::Pending);
        let bomb = Bomb("done");
        let done = poll_fn(move |_| {
            let whole = &bomb;
            Poll::Ready(whole.0)
        });
        assert_eq!(poll_once(contain_future(done, note)), Poll::Ready(Ok("done")));
        assert_eq!(*seen.borrow(), ["cancelled", "done"]);
    }
}
