//! One run of ATP's endpoints, as a program without an async runtime has them.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use remora_atp::session::{Config, Guests};
use remora_atp::{Options, Outcome};
use remora_host::atp::blocking::{BlockingEndpoint, wait};
use remora_host::atp::{Request, Settings, keys};

use super::{AHEAD, Error, Load, PATIENCE, deadline, failed};

/// Sends everything; how long it took.
pub(super) fn run(load: &Load) -> Result<Duration, Error> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let key = || keys::generate().map_err(failed("a key"));
    let session = Config { guests: Guests::Anyone, ..Config::default() };
    let receiver = Settings { session, datagram_max: load.datagram, ..Settings::receiver(at) };
    let receiver = BlockingEndpoint::bind(receiver, key()?).map_err(failed("the receiver"))?;
    let sender = Settings { listen: at, datagram_max: load.datagram, ..Settings::sender() };
    let sender = BlockingEndpoint::bind(sender, key()?).map_err(failed("the sender"))?;
    let (to, their_key) = (receiver.endpoint().local_addr(), receiver.endpoint().public_key());
    let remote =
        sender.connect(to, their_key, PATIENCE).ok_or("it takes too long").map_err(failed("the connection"))?;
    let remote = remote.map_err(failed("the connection"))?;
    let (began, until) = (Instant::now(), deadline());
    thread::scope(|scope| {
        let taking = scope.spawn(|| take(&receiver, load, until));
        let mut under_way: VecDeque<Request> = VecDeque::new();
        for _ in 0..load.count {
            if under_way.len() >= AHEAD {
                delivered(under_way.pop_front())?;
            }
            under_way.push_back(remote.send(load.object.clone(), Options::default()).map_err(failed("sending"))?);
        }
        while !under_way.is_empty() {
            delivered(under_way.pop_front())?;
        }
        taking.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
    })?;
    Ok(began.elapsed())
}

/// Waits for a request's end, which must be a good one.
fn delivered(request: Option<Request>) -> Result<(), Error> {
    let Some(request) = request else { return Ok(()) };
    match wait(request).map_err(failed("sending"))?.outcome {
        Outcome::Delivered => Ok(()),
        other => Err(failed("an object")(format!("{other:?}"))),
    }
}

/// Takes all objects.
fn take(receiver: &BlockingEndpoint, load: &Load, until: Instant) -> Result<(), Error> {
    for _ in 0..load.count {
        let left = until.saturating_duration_since(Instant::now());
        let received = receiver.recv(Some(left)).ok_or("it takes too long").map_err(failed("receiving"))?;
        if received.map_err(failed("receiving"))?.object.len() != load.object.len() {
            return Err(failed("an object")("it came in another size"));
        }
    }
    Ok(())
}
