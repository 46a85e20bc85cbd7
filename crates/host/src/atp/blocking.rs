//! The blocking interface of an endpoint, for programs without an async runtime. The endpoint has its own thread,
//! so no runtime is needed.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_atp::session::{Identity, PublicKey};
use remora_atp::{Final, Options};
use remora_base::Rate;

use super::{AtpEndpoint, AtpError, AtpNotice, Crossing, EndpointSettings, Received, Remote, Request};

/// An endpoint with blocking calls. Clones share it.
#[derive(Clone, Debug)]
pub struct BlockingEndpoint(AtpEndpoint);

impl BlockingEndpoint {
    /// Blocking form of [`AtpEndpoint::bind`].
    pub fn bind(settings: EndpointSettings, identity: Identity) -> Result<BlockingEndpoint, AtpError> {
        AtpEndpoint::bind(settings, identity).map(BlockingEndpoint)
    }

    /// The endpoint itself, for calls that do not block.
    pub fn endpoint(&self) -> &AtpEndpoint {
        &self.0
    }

    /// Connects to the owner of `key` at `addr`; `None` without an answer within `patience`.
    pub fn connect(&self, addr: SocketAddr, key: PublicKey, patience: Duration) -> Option<Result<Remote, AtpError>> {
        let remote = match self.0.connect(addr, key) {
            Ok(remote) => remote,
            Err(e) => return Some(Err(e)),
        };
        let up = wait_for(remote.up(), Some(patience))?;
        Some(up.map(|()| remote))
    }

    /// Sends an object and waits for its end (`send_sync` in ATP 02). For asynchronous sending use [`Remote::send`]
    /// and [`wait`].
    pub fn send(&self, to: &Remote, object: Bytes, options: Options) -> Result<Final, AtpError> {
        wait(to.send(object, options)?)
    }

    /// Waits for the next received object; `None` after `patience`.
    pub fn recv(&self, patience: Option<Duration>) -> Option<Result<Received, AtpError>> {
        wait_for(self.0.recv(), patience)
    }

    /// Waits for the next notice; `None` after `patience`.
    pub fn notice(&self, patience: Option<Duration>) -> Option<Result<AtpNotice, AtpError>> {
        wait_for(self.0.notice(), patience)
    }

    /// Waits until the bandwidth leaves the bounds; `None` after `patience`.
    pub fn bounds(
        &self,
        to: &Remote,
        low: Option<Rate>,
        high: Option<Rate>,
        patience: Option<Duration>,
    ) -> Option<Result<Crossing, AtpError>> {
        wait_for(to.bounds(low, high), patience)
    }

    /// Blocking form of [`AtpEndpoint::rebind`].
    pub fn rebind(&self, addr: SocketAddr) -> Result<SocketAddr, AtpError> {
        block_on(self.0.rebind(addr))
    }

    /// Blocking form of [`AtpEndpoint::close`].
    pub fn close(&self) {
        block_on(self.0.close());
    }
}

/// Waits for the end of a request.
pub fn wait(request: Request) -> Result<Final, AtpError> {
    block_on(request)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        // Without a timeout there is always an answer.
        if let Some(answer) = wait_for(future.as_mut(), None) {
            return answer;
        }
    }
}

/// Waits in this thread, at most `patience`.
fn wait_for<T>(future: impl Future<Output = T>, patience: Option<Duration>) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let end = patience.and_then(|p| Instant::now().checked_add(p));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut context) {
            return Some(answer);
        }
        match end.map(|end| end.saturating_duration_since(Instant::now())) {
            None => thread::park(),
            Some(Duration::ZERO) => return None,
            Some(left) => thread::park_timeout(left),
        }
    }
}
