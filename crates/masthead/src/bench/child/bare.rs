//! The floor: sockets that are sent the same bytes by blocking writes, without a server.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use masthead_core::{EventType, Frame, ListBody, ListMeta, Object, Projection, Resource, Revision};
use masthead_server::Credentials;
use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{Answer, ChildArguments, Hello, Order, Place};

/// As many as the kernel takes at a time.
const SLICES: usize = 1024;

/// A connection, in the clear or not.
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, Whole>>),
}

/// A socket that is sent one slice by `send` and not by `writev`, which costs more.
struct Whole(TcpStream);

impl io::Read for Whole {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl io::Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match slices {
            [slice] => self.0.write(slice),
            _ => self.0.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Watches = Arc<Mutex<Vec<Stream>>>;
/// What was sent so far: it is what a watch that comes later has missed.
type Sent = Arc<Mutex<Vec<Bytes>>>;

pub(super) fn run(arguments: &ChildArguments) -> anyhow::Result<()> {
    let objects = super::objects(arguments.pods, arguments.nodes, arguments.bytes);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let (watches, sent) = (Watches::default(), Sent::default());
    let accepting = (watches.clone(), sent.clone(), objects.clone());
    let place = Place::new(&std::env::temp_dir())?;
    let credentials = Credentials::load_or_create(&place.path("credentials"), &[])?;
    let tls = if arguments.tls { Some(credentials.tls(None)?) } else { None };
    let ca = arguments.tls.then_some(credentials.ca);
    std::thread::spawn(move || {
        accept(&listener, tls.as_ref(), &accepting.0, &accepting.1, &accepting.2);
    });
    super::say(&Hello { address, revision: 1, token: String::new(), ca, process: None })?;
    let frames: Vec<Bytes> = objects.iter().map(|it| chunk(it).into()).collect();
    let threads = if arguments.wide { std::thread::available_parallelism()?.get() } else { 1 };
    super::obey(|order| match order {
        Order::Watches => Answer::Watches(watches.lock().len()),
        Order::Update { rate, count } => Answer::Updated(super::paced(rate, count, |at| {
            let frame = &frames[at % frames.len()];
            sent.lock().push(frame.clone());
            send_all(&mut watches.lock(), frame, threads);
        })),
        Order::Touch { .. } | Order::Restart => Answer::Unable,
    })
}

/// One connection at a time is answered; what watches is kept.
fn accept(
    listener: &TcpListener,
    tls: Option<&Arc<ServerConfig>>,
    watches: &Watches,
    sent: &Sent,
    objects: &[Object],
) {
    for stream in listener.incoming().flatten() {
        // A client that goes away ends its answer, not the measurement.
        if let Ok(Some(stream)) = secured(stream, tls).and_then(|it| answer(it, sent, objects)) {
            watches.lock().push(stream);
        }
    }
}

fn secured(stream: TcpStream, tls: Option<&Arc<ServerConfig>>) -> io::Result<Stream> {
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok(Stream::Plain(stream)) };
    let connection = ServerConnection::new(tls.clone()).map_err(io::Error::other)?;
    Ok(Stream::Tls(Box::new(StreamOwned::new(connection, Whole(stream)))))
}

impl io::Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl io::Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write_vectored(slices),
            Self::Tls(stream) => stream.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// Answers lists until the client goes, or gives back a watch whose head is sent.
fn answer(mut stream: Stream, sent: &Sent, objects: &[Object]) -> io::Result<Option<Stream>> {
    let mut head = vec![0; 4096];
    loop {
        let count = stream.read(&mut head)?;
        if count == 0 {
            return Ok(None);
        }
        if memchr::memmem::find(&head[..count], b"watch=").is_some() {
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            let mut slices: Vec<Bytes> = vec![head.into()];
            slices.extend_from_slice(&sent.lock());
            write_all(&mut stream, &mut slices)?;
            return Ok(Some(stream));
        }
        let meta = ListMeta { revision: Revision(1), ..ListMeta::default() };
        let list = ListBody::new(&Resource::pods(), &meta, objects.to_vec(), Projection::Whole);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", list.bytes());
        let mut slices: Vec<Bytes> = vec![head.into()];
        slices.extend(list);
        write_all(&mut stream, &mut slices)?;
    }
}

fn write_all(stream: &mut Stream, slices: &mut [Bytes]) -> io::Result<()> {
    let mut at = 0;
    while at < slices.len() {
        let some = &slices[at..slices.len().min(at + SLICES)];
        let some: Vec<_> = some.iter().map(|it| IoSlice::new(it)).collect();
        let mut written = stream.write_vectored(&some)?;
        while let Some(slice) = slices.get_mut(at).filter(|it| it.len() <= written) {
            written -= slice.len();
            at += 1;
        }
        if let Some(slice) = slices.get_mut(at) {
            slice.advance(written);
        }
    }
    Ok(())
}

/// An event in its chunk.
fn chunk(object: &Object) -> Vec<u8> {
    let frame = Frame::event(EventType::Modified, object, object.revision(), Projection::Whole);
    let mut chunk = format!("{:X}\r\n", frame.len()).into_bytes();
    chunk.extend_from_slice(&frame.to_bytes());
    chunk.extend_from_slice(b"\r\n");
    chunk
}

fn send_all(watches: &mut [Stream], chunk: &[u8], threads: usize) {
    if threads == 1 {
        return send(watches, chunk);
    }
    let part = watches.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for watches in watches.chunks_mut(part) {
            scope.spawn(|| send(watches, chunk));
        }
    });
}

fn send(watches: &mut [Stream], chunk: &[u8]) {
    for watch in watches {
        // One that is gone shows in the count of what arrived.
        let _ = watch.write_all(chunk).and_then(|()| watch.flush());
    }
}
