//! A running server: started, asked, shut down.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use remora_atp::session::PublicKey;
use remora_server::{Exports, Programs, Server};
use remora_wire::rpcbind::{self, Netid, Service};
use remora_wire::{mount, nfs2, nfs3, portmap};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::AbortHandle;

use super::descriptors::Descriptors;
use super::export_upkeep;
use crate::atp::AtpEndpoint;
use crate::server::executor::{ExecutorQueue, Pool};
use crate::server::net::context::NetContext;
use crate::server::net::udp::{self, DatagramSocket};
use crate::server::net::{accept, atp, listen_sockets};
use crate::server::options::{Objects, Options, StartError};
use crate::server::shards::dispatcher::Dispatcher;
use crate::server::statistics::{Counters, Snapshot};

/// A server at work. Dropping it ends it at once; see [`Serving::shutdown`] for better.
pub struct Serving {
    context: Arc<NetContext>,
    jobs: Arc<ExecutorQueue>,
    sockets: Vec<Arc<DatagramSocket>>,
    threads: Threads,
    executors: Vec<JoinHandle<()>>,
    /// The tasks that let requests in by datagram and connections by listener.
    intake: Vec<AbortHandle>,
    addrs: Vec<SocketAddr>,
    mount_addr: Option<SocketAddr>,
    portmap_addr: Option<SocketAddr>,
    descriptors: Descriptors,
    /// Closed when it goes, after everything else.
    objects: Option<AtpEndpoint>,
}

/// A server's numbers, for whoever does not own the server.
#[derive(Clone)]
pub struct Watch(Arc<NetContext>);

impl Watch {
    /// The server in numbers.
    pub fn stats(&self) -> Snapshot {
        self.0.snapshot()
    }
}

/// How a shutdown went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shutdown {
    /// Requests that were not answered in time. Their clients will send them again.
    pub abandoned: usize,
}

impl Serving {
    /// Starts serving, on threads of its own. When it returns, every address answers.
    pub fn start(options: Options) -> Result<Serving, StartError> {
        if options.listen.is_empty() {
            return Err(StartError::NoAddress);
        }
        let doors = doors(&options);
        let pairs = listen_sockets::bind_all(&doors.iter().map(|(addr, _)| *addr).collect::<Vec<_>>(), options.udp)?;
        let seed = match options.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(|e| StartError::Random(e.to_string()))?,
        };
        let descriptors = Descriptors::count(options.core.exports.iter().count(), options.executor_threads);
        descriptors.check()?;
        let limits = options.limits;

        let threads = Threads::start(options.socket_threads).map_err(StartError::Threads)?;
        let runtime = threads.handle.clone();
        let entered = runtime.enter();
        let mut addrs: Vec<SocketAddr> = pairs.iter().map(|p| p.addr).collect();
        let (mut listeners, mut sockets) = (Vec::new(), Vec::new());
        for (pair, (_, programs)) in pairs.into_iter().zip(doors) {
            let failed = |protocol| move |e| StartError::bind(pair.addr, protocol, e);
            listeners.push((TcpListener::from_std(pair.tcp).map_err(failed("TCP"))?, programs));
            if let Some(udp) = pair.udp {
                sockets.push(Arc::new(DatagramSocket::new(udp, programs).map_err(failed("UDP"))?));
            }
        }
        let portmap_addr = options.portmap_listen.and_then(|_| addrs.pop());
        let mount_addr = options.mount_listen.and_then(|_| addrs.pop());
        let counters = Arc::new(Counters::default());
        let jobs = Arc::new(ExecutorQueue::new(options.queueing));
        let (core_limits, exports) = (options.core.limits, options.core.exports.clone());
        let prepare = |core: &mut Server| {
            if let Some(at) = portmap_addr {
                let list = services(&addrs, mount_addr).into_iter().chain(portmapper(at));
                core.set_portmap(list.filter(|service| is_served(service.netid, options.udp)).collect());
            }
        };
        let dispatcher = Arc::new(Dispatcher::new(options.core, seed, jobs.clone(), counters.clone(), prepare));
        let context = Arc::new(NetContext::new(dispatcher, counters, limits, core_limits, exports));
        context.set_connections_fitting(descriptors.connections_at_least());
        let (executors, intake, objects) = (Vec::new(), Vec::new(), None);
        // From here on an error ends what has been started.
        let mut serving = Serving {
            context,
            jobs,
            sockets,
            threads,
            executors,
            intake,
            addrs,
            mount_addr,
            portmap_addr,
            descriptors,
            objects,
        };
        let (n, extra_max) = (options.executor_threads, options.executor_threads_more);
        serving.start_executors(n, extra_max).map_err(StartError::Threads)?;
        serving.start_tasks(&runtime, listeners, options.objects)?;
        drop(entered);
        Ok(serving)
    }

    /// Starts the executor's threads.
    fn start_executors(&mut self, n: usize, extra_max: usize) -> io::Result<()> {
        let dispatcher = self.context.dispatcher.clone();
        let clock = dispatcher.clock;
        self.executors = Pool::start(self.jobs.clone(), dispatcher, clock, n, extra_max)?;
        Ok(())
    }

    /// Starts the tasks of the sockets.
    fn start_tasks(
        &mut self,
        runtime: &Handle,
        listeners: Vec<(TcpListener, Programs)>,
        objects: Option<Objects>,
    ) -> Result<(), StartError> {
        let context = &self.context;
        if let Some(options) = objects {
            let endpoint = atp::bind(options, context.core_limits.stream_io_max)?;
            self.objects = Some(endpoint.clone());
            self.intake.push(runtime.spawn(atp::run(context.clone(), endpoint)).abort_handle());
        }
        let dispatcher = context.dispatcher.clone();
        runtime.spawn(async move { dispatcher.run_timer().await });
        for socket in &self.sockets {
            self.intake.push(runtime.spawn(udp::run(context.clone(), socket.clone())).abort_handle());
        }
        for (listener, programs) in listeners {
            self.intake.push(runtime.spawn(accept::run(context.clone(), listener, programs)).abort_handle());
        }
        self.intake.push(runtime.spawn(export_upkeep::run(context.clone())).abort_handle());
        Ok(())
    }

    /// Where it listens, in the order of [`Options::listen`], with the ports it got.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Where [`Options::mount_listen`] came to be.
    pub fn mount_addr(&self) -> Option<SocketAddr> {
        self.mount_addr
    }

    /// Where [`Options::portmap_listen`] came to be.
    pub fn portmap_addr(&self) -> Option<SocketAddr> {
        self.portmap_addr
    }

    /// Where it listens for objects (ATP), with the port it got, and the key to know it by.
    pub fn objects(&self) -> Option<(SocketAddr, PublicKey)> {
        self.objects.as_ref().map(|o| (o.local_addr(), o.public_key()))
    }

    /// What a portmapper is to know of this server: every version of NFS and MOUNT, over UDP
    /// and TCP, IPv4 and IPv6, as far as it is served.
    pub fn services(&self) -> Vec<Service> {
        let all = services(&self.addrs, self.mount_addr).into_iter();
        all.filter(|service| is_served(service.netid, self.has_udp())).collect()
    }

    /// Whether it serves over UDP.
    pub fn has_udp(&self) -> bool {
        !self.sockets.is_empty()
    }

    /// Most TCP connections it takes: fewer than asked for where the process may not open
    /// as many files.
    pub fn connections_max(&self) -> usize {
        self.context.connections_max()
    }

    /// Most files the process may have open.
    pub fn descriptors_max(&self) -> usize {
        self.descriptors.max
    }

    /// Serves `exports` from now on, without a pause: requests under way end as they began, and the
    /// next ones meet the new exports. Ends the connections of peers that may use their first export now, or none any more.
    pub fn set_exports(&self, exports: Arc<Exports>) {
        self.context.set_exports(&exports);
        let descriptors = self.descriptors.with_exports(exports.iter().count());
        self.context.set_connections_fitting(descriptors.connections_at_least());
    }

    /// The server in numbers.
    pub fn stats(&self) -> Snapshot {
        self.context.snapshot()
    }

    /// Somebody who may look at the numbers for as long as they like.
    pub fn watch(&self) -> Watch {
        Watch(self.context.clone())
    }

    /// Lets nothing more in, waits until what came in is answered, for at most
    /// [`Limits::shutdown_max`](crate::server::Limits::shutdown_max), and ends. Blocks.
    pub fn shutdown(mut self) -> Shutdown {
        let until = Instant::now() + self.context.limits.shutdown_max;
        self.intake.iter().for_each(AbortHandle::abort);
        // What fetches requests does not end at once, and may fetch a few more. Connections are asked again each
        // time: one may have been on its way in.
        while {
            self.context.dispatcher.stop_connections();
            let fetches = !self.intake.iter().all(AbortHandle::is_finished);
            fetches || self.context.connections() > 0 || self.context.admission.under_way() > 0
        } && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        let abandoned = self.context.admission.under_way();
        self.jobs.close();
        if let Some(runtime) = self.threads.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
        // A thread that a disk does not answer cannot be waited for.
        while self.executors.iter().any(|t| !t.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        Shutdown { abandoned }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.jobs.close();
    }
}

/// The threads that serve sockets. Who lets go of them does not wait for their end: it may be in an
/// asynchronous task, where that is forbidden.
struct Threads {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Threads {
    fn start(n: usize) -> io::Result<Threads> {
        let runtime =
            Builder::new_multi_thread().worker_threads(n.max(1)).thread_name("sockets").enable_all().build()?;
        Ok(Threads { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Where to listen, and for what: first everything's addresses, last the portmapper's.
fn doors(options: &Options) -> Vec<(SocketAddr, Programs)> {
    let all = options.listen.iter().map(|addr| (*addr, Programs::All));
    let mount = options.mount_listen.map(|addr| (addr, Programs::Mount));
    let portmap = options.portmap_listen.map(|addr| (addr, Programs::Portmap));
    all.chain(mount).chain(portmap).collect()
}

/// NFS at the first of `addrs`, and MOUNT there too unless it has a port of its own.
fn services(addrs: &[SocketAddr], mount_addr: Option<SocketAddr>) -> Vec<Service> {
    let Some(nfs) = addrs.first() else { return Vec::new() };
    let mount_at = mount_addr.as_ref().unwrap_or(nfs);
    [
        (nfs3::PROGRAM, nfs2::VERSION, nfs),
        (nfs3::PROGRAM, nfs3::VERSION, nfs),
        (mount::PROGRAM, mount::VERSION_1, mount_at),
        (mount::PROGRAM, mount::VERSION, mount_at),
    ]
    .into_iter()
    .flat_map(|(prog, vers, at)| over_all(prog, vers, *at))
    .collect()
}

fn portmapper(at: SocketAddr) -> impl Iterator<Item = Service> {
    // Version 2 knows IPv4 only.
    let v2 = over_all(portmap::PROGRAM, portmap::VERSION, at).filter(|service| service.netid.is_ipv4());
    let later = [rpcbind::VERSION_3, rpcbind::VERSION_4];
    v2.chain(later.into_iter().flat_map(move |vers| over_all(portmap::PROGRAM, vers, at)))
}

fn is_served(netid: Netid, with_udp: bool) -> bool {
    with_udp || matches!(netid, Netid::Tcp | Netid::Tcp6)
}

/// A program over every transport by which `at` is reached. `[::]` takes IPv4, too.
fn over_all(prog: u32, vers: u32, at: SocketAddr) -> impl Iterator<Item = Service> {
    let v4 = match at.ip().to_canonical() {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(ip) => ip.is_unspecified().then_some(Ipv4Addr::UNSPECIFIED),
    };
    let v4 = v4.map(|ip| ([Netid::Tcp, Netid::Udp], SocketAddr::new(ip.into(), at.port())));
    let v6 = at.ip().to_canonical().is_ipv6().then_some(([Netid::Tcp6, Netid::Udp6], at));
    let families = v4.into_iter().chain(v6);
    families.flat_map(move |(netids, at)| netids.map(|netid| Service { prog, vers, netid, at }))
}
