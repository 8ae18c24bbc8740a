//! The floor: sockets that are sent the same bytes by blocking writes, without a server.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use masthead_core::{EventType, Frame, ListBody, ListMeta, Object, Projection, Resource, Revision};
use parking_lot::Mutex;

use super::{Answer, ChildArguments, Hello, Order};

/// As many as the kernel takes at a time.
const SLICES: usize = 1024;

type Watches = Arc<Mutex<Vec<TcpStream>>>;

pub(super) fn run(arguments: &ChildArguments) -> anyhow::Result<()> {
    let objects = super::objects(arguments);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let watches = Watches::default();
    let accepting = (watches.clone(), objects.clone());
    std::thread::spawn(move || accept(&listener, &accepting.0, &accepting.1));
    super::say(&Hello { address, revision: 1, token: String::new(), ca: None })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let frames: Vec<_> = objects.iter().map(chunk).collect();
    super::obey(|order| match order {
        Order::Watches => Answer::Watches(watches.lock().len()),
        Order::Update { rate, count } => {
            Answer::Updated(runtime.block_on(super::paced(rate, count, async |at| {
                send(&mut watches.lock(), &frames[at % frames.len()]);
            })))
        }
    })
}

/// One connection at a time is answered; what watches is kept.
fn accept(listener: &TcpListener, watches: &Watches, objects: &[Object]) {
    for stream in listener.incoming().flatten() {
        // A client that goes away ends its answer, not the measurement.
        if let Ok(Some(stream)) = answer(stream, objects) {
            watches.lock().push(stream);
        }
    }
}

/// Answers lists until the client goes, or gives back a watch whose head is sent.
fn answer(mut stream: TcpStream, objects: &[Object]) -> io::Result<Option<TcpStream>> {
    stream.set_nodelay(true)?;
    let mut head = vec![0; 4096];
    loop {
        let count = stream.read(&mut head)?;
        if count == 0 {
            return Ok(None);
        }
        if memchr::memmem::find(&head[..count], b"watch=").is_some() {
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
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

fn write_all(stream: &mut TcpStream, slices: &mut [Bytes]) -> io::Result<()> {
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

fn send(watches: &mut [TcpStream], chunk: &[u8]) {
    for watch in watches {
        // One that is gone shows in the count of what arrived.
        let _ = watch.write_all(chunk);
    }
}
