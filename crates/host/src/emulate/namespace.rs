//! Namespaces. A network namespace without a name lives as long as a descriptor of it or a process in it, and
//! leaves nothing behind. Programs start as process 1 of a new PID namespace, all from one thread that lives as
//! long as the emulator, because the kernel kills them when their parent *thread* ends (`PR_SET_PDEATHSIG`,
//! prctl(2)).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use nix::sched::{CloneFlags, setns, unshare};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// A network namespace, with loopback up and IPv6 off.
#[derive(Debug)]
pub(super) struct Namespace(File);

impl Namespace {
    /// Creates a namespace on a thread of its own, because a thread needs rights to return to its previous one.
    pub(super) fn create() -> io::Result<Namespace> {
        on_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            loopback_up()?;
            settings()?;
            Ok(Namespace(File::open("/proc/thread-self/ns/net")?))
        })
    }

    /// Runs `work` on a thread in the namespace. Sockets and devices created there belong to the namespace and work
    /// anywhere.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        on_a_thread(|| {
            setns(&self.0, CloneFlags::CLONE_NEWNET)?;
            work()
        })
    }

    /// Path for other processes, while this one lives.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }
}

/// Moves the calling thread into the namespace at `path`.
pub(super) fn enter(path: &Path) -> io::Result<()> {
    Ok(setns(File::open(path)?, CloneFlags::CLONE_NEWNET)?)
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("namespace".into()).spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Sets what programs expect: no unsolicited traffic, no limit on ICMP errors, and a base that forwards between
/// mobiles.
fn settings() -> io::Result<()> {
    let set = |key: &str, value: &str| {
        let path = format!("/proc/sys/net/{key}");
        fs::write(&path, value).map_err(|e| io::Error::new(e.kind(), format!("cannot set {path} to {value}: {e}")))
    };
    if Path::new("/proc/sys/net/ipv6").exists() {
        set("ipv6/conf/all/disable_ipv6", "1")?;
        set("ipv6/conf/default/disable_ipv6", "1")?;
    }
    for scope in ["all", "default"] {
        set(&format!("ipv4/conf/{scope}/rp_filter"), "0")?;
        set(&format!("ipv4/conf/{scope}/send_redirects"), "0")?;
    }
    set("ipv4/ip_forward", "1")?;
    // Experiments must not share TCP metrics.
    set("ipv4/tcp_no_metrics_save", "1")?;
    set("ipv4/icmp_ratelimit", "0")
}

/// Sets the loopback device up by a message to rtnetlink (netlink protocol 0).
fn loopback_up() -> io::Result<()> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, &loopback_message(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut reply = [0; 128];
    let (_, n) = recv(&socket, &mut reply, RecvFlags::empty())?;
    // A 16-byte header (struct nlmsghdr), then a negated error number; 0 is success.
    match reply.get(..n).and_then(|r| r.get(16..20)).and_then(|e| <[u8; 4]>::try_from(e).ok()) {
        Some(code) => match i32::from_ne_bytes(code) {
            0 => Ok(()),
            e => Err(io::Error::from_raw_os_error(e.saturating_neg())),
        },
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// RTM_NEWLINK with struct ifinfomsg and an acknowledgement (rtnetlink(7)). The loopback device of a new namespace
/// has index 1.
fn loopback_message() -> [u8; 32] {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST_ACK: u16 = 1 | 4;
    const IFF_UP: u32 = 1;
    let mut m = [0; 32];
    let fields: [(usize, &[u8]); 6] = [
        (0, &32u32.to_ne_bytes()),
        (4, &RTM_NEWLINK.to_ne_bytes()),
        (6, &NLM_F_REQUEST_ACK.to_ne_bytes()),
        (20, &1i32.to_ne_bytes()),   // ifi_index
        (24, &IFF_UP.to_ne_bytes()), // ifi_flags
        (28, &IFF_UP.to_ne_bytes()), // ifi_change
    ];
    for (at, bytes) in fields {
        m[at..at + bytes.len()].copy_from_slice(bytes);
    }
    m
}

/// A command to start, and the receiver of its child.
type Request = (Command, Sender<io::Result<Child>>);

/// The thread that starts programs. Dropping it kills them.
#[derive(Debug)]
pub(super) struct Spawner {
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Spawner {
    pub(super) fn start() -> io::Result<Spawner> {
        let (requests, incoming) = channel();
        let own = File::open("/proc/self/ns/pid")?;
        let thread = std::thread::Builder::new().name("spawner".into()).spawn(move || serve(&own, &incoming))?;
        Ok(Spawner { requests: Some(requests), thread: Some(thread) })
    }

    pub(super) fn spawn(&self, command: Command) -> io::Result<Child> {
        let gone = || io::Error::other("the thread that starts programs has ended");
        let (reply, answer) = channel();
        self.requests.as_ref().ok_or_else(gone)?.send((command, reply)).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(own: &File, incoming: &Receiver<Request>) {
    while let Ok((mut command, reply)) = incoming.recv() {
        let child = in_new_pid_namespace(own, || command.spawn());
        // The caller waits for the answer.
        let _ = reply.send(child);
    }
}

/// The first child of this thread enters the new PID namespace, later ones do not.
fn in_new_pid_namespace<T>(own: &File, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    unshare(CloneFlags::CLONE_NEWPID)?;
    let started = start();
    setns(own, CloneFlags::CLONE_NEWPID)?;
    started
}
