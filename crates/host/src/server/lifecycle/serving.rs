//! A running server: start, state and shutdown.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use remora_atp::session::PublicKey;
use remora_server::{Exports, Programs, Server};
use remora_wire::rpcbind::{self, Netid, Service};
use remora_wire::{mount, nfs2, nfs3, nfsacl, portmap};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::AbortHandle;

use super::descriptors::Descriptors;
use super::export_upkeep;
use crate::atp::AtpEndpoint;
use crate::server::executor::{ExecutorPool, ExecutorQueue};
use crate::server::net::context::NetContext;
use crate::server::net::udp::{self, DatagramSocket};
use crate::server::net::{atp, listen_sockets, tcp_connection};
use crate::server::options::{InheritedSockets, Objects, ServerOptions, StartError};
use crate::server::shards::dispatcher::Dispatcher;
use crate::server::shards::group_waiters::GroupWaiters;
use crate::server::statistics::{ServerMetrics, ServerSnapshot, SocketCounters};

/// A running server. Dropping it ends it at once; [`Serving::shutdown`] answers its requests first.
pub struct Serving {
    context: Arc<NetContext>,
    jobs: Arc<ExecutorQueue>,
    sockets: Vec<Arc<DatagramSocket>>,
    threads: Threads,
    executors: Vec<JoinHandle<()>>,
    /// The tasks that receive datagrams and accept connections.
    intake: Vec<AbortHandle>,
    addrs: Vec<SocketAddr>,
    mount_addr: Option<SocketAddr>,
    portmap_addr: Option<SocketAddr>,
    descriptors: Descriptors,
    /// The ATP endpoint, closed after everything else.
    objects: Option<AtpEndpoint>,
}

/// Access to the statistics of a server without owning it.
#[derive(Clone)]
pub struct Watch(Arc<NetContext>);

impl Watch {
    /// The server's present state and counters.
    pub fn stats(&self) -> ServerSnapshot {
        self.0.snapshot()
    }

    /// The same with requests by procedure and the use of budgets.
    pub fn metrics(&self) -> ServerMetrics {
        self.0.metrics()
    }
}

/// The result of a shutdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shutdown {
    /// Requests that were not answered in time. Their clients send them again.
    pub abandoned: usize,
}

impl Serving {
    /// Starts a server on threads of its own. When it returns, every address is served.
    pub fn start(options: ServerOptions) -> Result<Serving, StartError> {
        Serving::start_on(InheritedSockets::default(), options)
    }

    /// The same on `inherited` sockets, if there are any, instead of [`ServerOptions::listen`].
    pub fn start_on(inherited: InheritedSockets, mut options: ServerOptions) -> Result<Serving, StartError> {
        let mut pairs = listen_sockets::adopt(inherited, options.udp)?;
        if !pairs.is_empty() {
            options.listen = pairs.iter().map(|pair| pair.addr).collect();
        }
        if options.listen.is_empty() {
            return Err(StartError::NoAddress);
        }
        let doors = doors(&options);
        let unbound: Vec<SocketAddr> = doors.iter().skip(pairs.len()).map(|(addr, _)| *addr).collect();
        pairs.extend(listen_sockets::bind_all(&unbound, options.udp)?);
        Serving::start_at(pairs, doors, options)
    }

    fn start_at(
        pairs: Vec<listen_sockets::Pair>,
        doors: Vec<(SocketAddr, Programs)>,
        options: ServerOptions,
    ) -> Result<Serving, StartError> {
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
        let counters = Arc::new(SocketCounters::default());
        let jobs = Arc::new(ExecutorQueue::new(options.queueing));
        let (core_limits, exports) = (options.core.limits, options.core.exports.clone());
        let prepare = |core: &mut Server| {
            if let Some(at) = portmap_addr {
                let list = services(&addrs, mount_addr).into_iter().chain(portmapper(at));
                core.set_portmap(list.filter(|service| is_served(service.netid, options.udp)).collect());
            }
        };
        let groups = options.groups.map(|lookup| GroupWaiters::new(lookup, runtime.clone()));
        let dispatcher = Arc::new(Dispatcher::new(
            options.core,
            options.access_log,
            groups,
            seed,
            jobs.clone(),
            counters.clone(),
            prepare,
        ));
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

    fn start_executors(&mut self, n: usize, extra_max: usize) -> io::Result<()> {
        let dispatcher = self.context.dispatcher.clone();
        let clock = dispatcher.clock;
        self.executors = ExecutorPool::start(self.jobs.clone(), dispatcher, clock, n, extra_max)?;
        Ok(())
    }

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
            self.intake.push(runtime.spawn(tcp_connection::accept(context.clone(), listener, programs)).abort_handle());
        }
        self.intake.push(runtime.spawn(export_upkeep::run(context.clone())).abort_handle());
        Ok(())
    }

    /// The addresses, with their ports, in the order of [`ServerOptions::listen`].
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// The address of [`ServerOptions::mount_listen`], with its port.
    pub fn mount_addr(&self) -> Option<SocketAddr> {
        self.mount_addr
    }

    /// The address of [`ServerOptions::portmap_listen`], with its port.
    pub fn portmap_addr(&self) -> Option<SocketAddr> {
        self.portmap_addr
    }

    /// The address for ATP, with its port, and the server's public key.
    pub fn objects(&self) -> Option<(SocketAddr, PublicKey)> {
        self.objects.as_ref().map(|o| (o.local_addr(), o.public_key()))
    }

    /// The services to register with a portmapper: all versions of NFS and MOUNT, over every transport and address
    /// family that is served.
    pub fn services(&self) -> Vec<Service> {
        let all = services(&self.addrs, self.mount_addr).into_iter();
        all.filter(|service| is_served(service.netid, self.has_udp())).collect()
    }

    pub fn has_udp(&self) -> bool {
        !self.sockets.is_empty()
    }

    /// Most TCP connections: fewer than in the options if the process may not open as many files.
    pub fn connections_max(&self) -> usize {
        self.context.connections_max()
    }

    /// The process's limit of open files.
    pub fn descriptors_max(&self) -> usize {
        self.descriptors.max
    }

    /// Replaces the exports without a pause: requests in progress end with the old ones. Ends the connections of
    /// peers that may use their first export now, or none any more.
    pub fn set_exports(&self, exports: Arc<Exports>) {
        self.context.set_exports(&exports);
        let descriptors = self.descriptors.with_exports(exports.iter().count());
        self.context.set_connections_fitting(descriptors.connections_at_least());
    }

    /// The server's present state and counters.
    pub fn stats(&self) -> ServerSnapshot {
        self.context.snapshot()
    }

    /// Access to the statistics that may outlive the server.
    pub fn watch(&self) -> Watch {
        Watch(self.context.clone())
    }

    /// Stops to accept, waits until all requests are answered, for at most
    /// [`ServeLimits::shutdown_max`](crate::server::ServeLimits::shutdown_max), and ends. Blocks.
    pub fn shutdown(mut self) -> Shutdown {
        let until = Instant::now() + self.context.limits.shutdown_max;
        self.intake.iter().for_each(AbortHandle::abort);
        // An aborted task may still receive a few requests. Connections are stopped repeatedly because one may have
        // been accepted in the meantime.
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
        // A thread that a disk blocks cannot be joined.
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

/// The threads of the sockets. A drop does not wait for their end, which is forbidden in an asynchronous task.
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

/// The addresses to bind with their programs: first those for all programs, last the portmapper's.
fn doors(options: &ServerOptions) -> Vec<(SocketAddr, Programs)> {
    let all = options.listen.iter().map(|addr| (*addr, Programs::All));
    let mount = options.mount_listen.map(|addr| (addr, Programs::Mount));
    let portmap = options.portmap_listen.map(|addr| (addr, Programs::Portmap));
    all.chain(mount).chain(portmap).collect()
}

/// NFS at the first of `addrs`, and MOUNT, there or at its own address.
fn services(addrs: &[SocketAddr], mount_addr: Option<SocketAddr>) -> Vec<Service> {
    let Some(nfs) = addrs.first() else { return Vec::new() };
    let mount_at = mount_addr.as_ref().unwrap_or(nfs);
    [
        (nfs3::PROGRAM, nfs2::VERSION, nfs),
        (nfs3::PROGRAM, nfs3::VERSION, nfs),
        (nfsacl::PROGRAM, nfsacl::VERSION, nfs),
        (mount::PROGRAM, mount::VERSION_1, mount_at),
        (mount::PROGRAM, mount::VERSION, mount_at),
    ]
    .into_iter()
    .flat_map(|(prog, vers, at)| over_all(prog, vers, *at))
    .collect()
}

fn portmapper(at: SocketAddr) -> impl Iterator<Item = Service> {
    // Version 2 only knows IPv4.
    let v2 = over_all(portmap::PROGRAM, portmap::VERSION, at).filter(|service| service.netid.is_ipv4());
    let later = [rpcbind::VERSION_3, rpcbind::VERSION_4];
    v2.chain(later.into_iter().flat_map(move |vers| over_all(portmap::PROGRAM, vers, at)))
}

fn is_served(netid: Netid, with_udp: bool) -> bool {
    with_udp || matches!(netid, Netid::Tcp | Netid::Tcp6)
}

/// A program over every transport that reaches `at`. `[::]` includes IPv4.
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
