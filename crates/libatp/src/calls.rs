//! Implementation of the functions of `atp.h`, in safe Rust.

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
use crate::ffi::{Callback, CallbackEvent};
use crate::library::{self, Library, ended};
use crate::table::{Object, Refused, Table};

/// Maximum size of an object in bytes: the default of peers.
pub(crate) const OBJECT_MAX: usize = 64 << 20;
/// Maximum number of bandwidth waits whose end the library's thread has not seen; all but one are replaced.
const BOUNDS_MAX: usize = 1024;

/// Implements `atp_endpoint` of `atp.h`.
pub(crate) fn endpoint(host: &str, port: u16, key: PublicKey) -> Result<i32, Code> {
    let library = library::current()?;
    let found: Vec<_> = match host.parse() {
        Ok(ip) => vec![SocketAddr::new(ip, port)],
        Err(_) => {
            library::may_wait()?;
            (host, port).to_socket_addrs().map_err(|_| Code::NAME)?.collect()
        }
    };
    // An endpoint keeps its address, so choose one that the socket can send to.
    let addr = found.into_iter().find(|addr| library.endpoint.can_reach(*addr)).ok_or(Code::NAME)?;
    let mut table = library.table();
    let remote = library.endpoint.connect(addr, key)?;
    // Without an entry in the table the connection would leak.
    table.add_peer(remote.clone(), Some((addr, key))).inspect_err(|_| remote.close())
}

/// Implements `atp_accept` of `atp.h`.
pub(crate) fn accept(timeout_ms: i32) -> Result<i32, Code> {
    library::current()?.wait(timeout_ms, |table| Ok(table.accept()))
}

/// Implements `atp_peer_key` of `atp.h`.
pub(crate) fn peer_key(eid: i32) -> Result<PublicKey, Code> {
    let library = library::current()?;
    let mut table = library.table();
    let peer = table.peer(eid)?;
    peer.origin.map(|(_, key)| key).or_else(|| peer.remote.key()).ok_or(Code::DOWN)
}

/// Implements `atp_close` of `atp.h`.
pub(crate) fn close(eid: i32) -> Result<(), Code> {
    let library = library::current()?;
    let remote = library.table().remove_peer(eid)?;
    remote.close();
    library.room.notify_one();
    Ok(())
}

/// Implements `atp_send_sync` of `atp.h`; `began` gets the request's number before the wait.
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

/// Implements `atp_send_async` of `atp.h`.
pub(crate) fn send_async(eid: i32, object: Bytes, options: Options, callback: Option<Callback>) -> Result<i64, Code> {
    let library = library::current()?;
    // One lock for both steps: notices find the request in the table, and the thread does not end before the final
    // upcall.
    let mut table = library.table();
    let request = submit(&library, &mut table, eid, object, options)?;
    let number = table.add_request(eid, &request, callback, false);
    let of_task = library.clone();
    library.spawn(async move {
        let end = request.await;
        // The callback gets the result.
        let _ = of_task.end(number, end);
    });
    Ok(number)
}

/// Submits an object; reconnects the endpoint if its connection ended.
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
        // The reason may not be known yet: a regular end waits behind objects that were not taken, a refusal waits
        // behind nothing.
        Some((addr, key)) if why == Code::DOWN => {
            let remote = library.endpoint.connect(addr, key)?;
            table.reconnect(eid, remote.clone())?;
            // Refused at once: there was no connection.
            remote.send(object, options).map_err(|gone| match Code::from(ended(&remote).unwrap_or(gone)) {
                Code::DOWN => Code::LOST,
                why => why,
            })
        }
        _ => Err(why),
    }
}

/// Implements `atp_recv` of `atp.h`: takes an object of at most `capacity` bytes.
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

/// Implements `atp_callback` of `atp.h`; bounds in bytes per second.
pub(crate) fn bounds(eid: i32, callback: Callback, low: u64, high: u64) -> Result<(), Code> {
    let rate = |bytes: u64| Rate::from_bits(bytes.saturating_mul(8));
    let (low, high) = (rate(low), rate(high));
    if low.is_none() && high.is_none() {
        return Err(Code::INVALID);
    }
    let library = library::current()?;
    // One lock for both steps: a later call finds these bounds registered, and their number.
    let mut table = library.table();
    let remote = table.peer(eid)?.remote.clone();
    if !library.count_bounds(BOUNDS_MAX) {
        return Err(Code::FULL);
    }
    let of_wait = remote.clone();
    let mut wait = Box::pin(async move { of_wait.bounds(low, high).await });
    // Polled once here, so that the bounds are registered and errors known when the call returns.
    let first = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    if let Poll::Ready(Err(e)) = first {
        library.bounds.fetch_sub(1, Ordering::Relaxed);
        // For a closed connection, return the reason.
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
        // The bounds may have been crossed, then replaced, before this task ran: their context may be freed.
        let stands = of_task.table().bounds == number;
        // After a replacement, or the end of the library, no callback runs.
        if let (Ok(Crossing { rate, side }), true) = (crossing, stands) {
            callback.call(CallbackEvent::Bandwidth { rate: rate.map_or(0, |r| r.bits() / 8), side });
        }
    });
    Ok(())
}

/// Implements `atp_reqctl` of `atp.h`.
pub(crate) fn control(number: i64, command: Command) -> Result<Progress, Code> {
    let control = library::current()?.table().request(number)?.control.clone();
    control.ask(command).map_err(|_| Code::BAD_ID)
}
