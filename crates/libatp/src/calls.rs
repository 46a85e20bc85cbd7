//! What the functions of `atp.h` do, in safe Rust.

use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use remora_atp::session::PublicKey;
use remora_atp::{Command, OnShortage, Options, Progress};
use remora_base::Rate;
use remora_host::atp::blocking;
use remora_host::atp::{Crossing, Request};

use crate::code::Code;
use crate::ffi::{Callback, Told};
use crate::library::{self, Library, ended};
use crate::table::{Object, Refused, Table};

/// The largest object, in bytes: what peers take by default.
pub(crate) const OBJECT_MAX: usize = 64 << 20;
/// Waits for bounds whose end the library's thread has not seen; all but one have been replaced.
const BOUNDS_MAX: usize = 1024;

/// `atp_endpoint`.
pub(crate) fn endpoint(host: &str, port: u16, key: PublicKey) -> Result<i32, Code> {
    let library = library::current()?;
    let found: Vec<_> = match host.parse() {
        Ok(ip) => vec![SocketAddr::new(ip, port)],
        Err(_) => {
            library::may_wait()?;
            (host, port).to_socket_addrs().map_err(|_| Code::NAME)?.collect()
        }
    };
    // An endpoint talks to one address for good, so it is one that the socket can send to.
    let addr = found.into_iter().find(|addr| library.endpoint.can_reach(*addr)).ok_or(Code::NAME)?;
    let mut table = library.table();
    let remote = library.endpoint.connect(addr, key)?;
    // A connection that finds no place in the table would be nobody's.
    table.add_peer(remote.clone(), Some((addr, key))).inspect_err(|_| remote.close())
}

/// `atp_accept`.
pub(crate) fn accept(timeout_ms: i32) -> Result<i32, Code> {
    library::current()?.wait(timeout_ms, |table| Ok(table.accept()))
}

/// `atp_peer_key`.
pub(crate) fn peer_key(eid: i32) -> Result<PublicKey, Code> {
    let library = library::current()?;
    let mut table = library.table();
    let peer = table.peer(eid)?;
    peer.origin.map(|(_, key)| key).or_else(|| peer.remote.key()).ok_or(Code::DOWN)
}

/// `atp_close`.
pub(crate) fn close(eid: i32) -> Result<(), Code> {
    let library = library::current()?;
    let remote = library.table().remove_peer(eid)?;
    remote.close();
    library.room.notify_one();
    Ok(())
}

/// `atp_send_sync`; `began` hears the request's number before the wait.
pub(crate) fn send_sync(eid: i32, object: Bytes, options: Options, began: impl FnOnce(i64)) -> Result<(), Code> {
    library::may_wait()?;
    let library = library::current()?;
    let options = Options { on_shortage: OnShortage::Drop, ..options };
    let (number, request) = {
        let mut table = library.table();
        let request = submit(&library, &mut table, eid, object, options)?;
        (table.add_request(eid, &request, None, true), request)
    };
    began(number);
    library.end(number, blocking::wait(request))
}

/// `atp_send_async`.
pub(crate) fn send_async(eid: i32, object: Bytes, options: Options, callback: Option<Callback>) -> Result<i64, Code> {
    let library = library::current()?;
    // One lock for all: notices of the request find it in the table, and the thread does not end
    // before it has told of it.
    let mut table = library.table();
    let request = submit(&library, &mut table, eid, object, options)?;
    let number = table.add_request(eid, &request, callback, false);
    let of_task = library.clone();
    library.spawn(async move {
        let end = request.await;
        // The callback has heard it.
        let _ = of_task.end(number, end);
    });
    Ok(number)
}

/// Hands an object to the endpoint, which is connected anew if it was over.
fn submit(library: &Library, table: &mut Table, eid: i32, object: Bytes, options: Options) -> Result<Request, Code> {
    if table.is_closing {
        return Err(Code::CLOSED);
    }
    if table.is_full() {
        return Err(Code::FULL);
    }
    let peer = table.peer(eid)?;
    let gone = match peer.remote.send(object.clone(), options) {
        Ok(request) => return Ok(request),
        Err(e) => e,
    };
    let why = Code::from(ended(&peer.remote).unwrap_or(gone));
    match peer.origin {
        // Why it is over may not be known yet: that waits behind objects that nobody takes, those of
        // others, too. A refusal waits behind nothing.
        Some((addr, key)) if why == Code::DOWN => {
            let remote = library.endpoint.connect(addr, key)?;
            table.reconnect(eid, remote.clone())?;
            // Refused so soon that it is over already, it has not come about.
            remote.send(object, options).map_err(|gone| match Code::from(ended(&remote).unwrap_or(gone)) {
                Code::DOWN => Code::LOST,
                why => why,
            })
        }
        _ => Err(why),
    }
}

/// `atp_recv`: an object of at most `capacity` bytes.
pub(crate) fn recv(eid: i32, capacity: usize, timeout_ms: i32) -> Result<Object, Refused> {
    let library = library::current().map_err(Refused::Code)?;
    let look = |table: &mut Table| match table.take(eid, capacity) {
        Ok(object) => Ok(object.map(Ok)),
        Err(Refused::Code(code)) => Err(code),
        Err(small) => Ok(Some(Err(small))),
    };
    let object = library.wait(timeout_ms, look).map_err(Refused::Code)??;
    library.room.notify_one();
    Ok(object)
}

/// `atp_callback`: bounds in bytes per second.
pub(crate) fn bounds(eid: i32, callback: Callback, low: u64, high: u64) -> Result<(), Code> {
    let rate = |bytes: u64| Rate::from_bits(bytes.saturating_mul(8));
    let (low, high) = (rate(low), rate(high));
    if low.is_none() && high.is_none() {
        return Err(Code::INVALID);
    }
    let library = library::current()?;
    // One lock for all: whoever comes later finds these registered, by their number too.
    let mut table = library.table();
    let remote = table.peer(eid)?.remote.clone();
    if !library.count_bounds(BOUNDS_MAX) {
        return Err(Code::FULL);
    }
    let of_wait = remote.clone();
    let mut wait = Box::pin(async move { of_wait.bounds(low, high).await });
    // Looked at once here, so that they are registered, and errors known, when the call returns.
    let first = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    if let Poll::Ready(Err(e)) = first {
        library.bounds.fetch_sub(1, Ordering::Relaxed);
        // Gone: why is of interest.
        return Err(ended(&remote).unwrap_or(e).into());
    }
    table.bounds += 1;
    let number = table.bounds;
    drop(table);
    let of_task: Arc<Library> = library.clone();
    library.spawn(async move {
        let crossing = match first {
            Poll::Ready(crossing) => crossing,
            Poll::Pending => pin!(wait).await,
        };
        of_task.bounds.fetch_sub(1, Ordering::Relaxed);
        // They may have been crossed first and replaced then, before this came to run: their context may be gone.
        let stands = of_task.table().bounds == number;
        // Replaced, or the end of the library: nobody is called.
        if let (Ok(Crossing { rate, side }), true) = (crossing, stands) {
            callback.call(Told::Bandwidth { rate: rate.map_or(0, |r| r.bits() / 8), side });
        }
    });
    Ok(())
}

/// `atp_reqctl`.
pub(crate) fn control(number: i64, command: Command) -> Result<Progress, Code> {
    let control = library::current()?.table().request(number)?.control.clone();
    control.ask(command).map_err(|_| Code::BAD_ID)
}
