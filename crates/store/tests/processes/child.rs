//! The process that writes: this test program again, told by its environment what to do.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use masthead_core::{Object, ObjectKey, Resource, Revision};
use masthead_store::{CommitError, Condition, EmbeddedStore, ResourceName, Settings, Store, Write};

pub(crate) const WRITERS: usize = 8;
const DIRECTORY: &str = "MASTHEAD_STORE_CHILD";
const ROUND: &str = "MASTHEAD_STORE_ROUND";

/// Files and history so small that both turn over all the time.
pub(crate) fn settings() -> Settings {
    Settings::default().segment_bytes(30_000).keep_bytes(150_000).tail_bytes(20_000)
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

pub(crate) fn pods() -> ResourceName {
    (&Resource::pods()).into()
}

/// The nth write of a writer: always the same, so that whoever knows how many were acknowledged knows
/// what may have been under way.
pub(crate) fn write(round: usize, writer: usize, n: usize) -> Write {
    let key = ObjectKey::new("shop", &format!("r{round}-w{writer}-{}", n % 5)).unwrap();
    if n % 7 == 6 {
        return Write::delete(pods(), key, Condition::Present);
    }
    let body = format!(
        r#"{{"metadata":{{"namespace":"shop","name":"{}"}},"n":{n},"text":"{}"}}"#,
        key.name(),
        "x".repeat(n * 31 % 900)
    );
    let object = Object::parse(&Resource::pods(), body.into()).unwrap();
    Write::put(pods(), object, Condition::Any)
}

/// What a writer was told of its nth write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) writer: usize,
    pub(crate) n: usize,
    /// None for a conflict.
    pub(crate) revision: Option<Revision>,
}

impl Acknowledged {
    fn to_line(self) -> String {
        let revision = self.revision.unwrap_or_default();
        format!("ack {} {} {revision} .", self.writer, self.n)
    }

    /// A whole line; a line that the end has cut is none.
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let rest = line.strip_prefix("ack ")?.strip_suffix(" .")?;
        let mut parts = rest.split(' ');
        let (writer, n) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let revision: Revision = parts.next()?.parse().ok()?;
        Some(Self { writer, n, revision: (!revision.is_zero()).then_some(revision) })
    }
}

/// Starts the child; `shell` says what to do before.
pub(crate) fn start(dir: &Path, round: usize, shell: &str) -> Child {
    Command::new("sh")
        .args(["-c", &format!("{shell} exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child::writes_until_it_cannot", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, dir)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a child says, line by line.
pub(crate) fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok)
}

/// The child itself. Without its variables it is no test and does nothing.
#[test]
fn writes_until_it_cannot() {
    let Some(dir) = std::env::var_os(DIRECTORY) else { return };
    let round = std::env::var(ROUND).unwrap().parse().unwrap();
    // The harness has begun a line.
    say("");
    let store = Arc::new(EmbeddedStore::open(dir, settings()).unwrap());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            thread::spawn(move || run_writer(&store, round, writer))
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    say(&format!("health {:?}", store.health()));
    let key = ObjectKey::new("shop", &format!("r{round}-w0-0")).unwrap();
    say(&format!("readable {}", block_on(store.get(&pods(), &key)).is_ok()));
}

fn run_writer(store: &EmbeddedStore, round: usize, writer: usize) {
    for n in 0.. {
        let result = block_on(store.commit(vec![write(round, writer, n)])).remove(0);
        let revision = match result {
            Ok(committed) => Some(committed.revision),
            Err(CommitError::Conflict { .. }) => None,
            Err(error) => return say(&format!("refused {error}")),
        };
        say(&Acknowledged { writer, n, revision }.to_line());
    }
}

fn say(line: &str) {
    // The parent may be gone, which is no concern of ours.
    let _ = io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}
