//! What the server's tests share: directories to serve, and clients of plain sockets that
//! know nothing but the wire format.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_host::server::{ServerOptions, ServerSnapshot, Serving};
use remora_server::{Access, Config, Export, Exports, Squash, Terms};
use remora_vfs::{LocalDisk, Vfs, local};
use remora_wire::nfs3::{
    self, Call, CreateArgs, CreateHow, DirOp, Fh, MadeOk, ReadArgs, Reply, SetAttr, Stable, WriteArgs,
};
use remora_wire::record::{RecordReader, mark};
use remora_wire::rpc::{AuthUnix, CallHeader, OpaqueAuth, Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr, mount, portmap};

/// Longer than anything here takes, however busy the machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A directory that goes when it is dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("serve-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn disk(&self) -> Arc<dyn Vfs> {
        Arc::new(LocalDisk::open(&self.0, local::Options::new([1; 8])).unwrap())
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Options that serve `vfs` as `/` on a free port.
pub(crate) fn options(vfs: Arc<dyn Vfs>) -> ServerOptions {
    sharing(vec![("/", vfs)])
}

/// The same, for those whom `access` lets in.
pub(crate) fn with_access(vfs: Arc<dyn Vfs>, access: Access) -> ServerOptions {
    sharing_with(vec![("/", vfs)], access)
}

pub(crate) fn sharing(exports: Vec<(&str, Arc<dyn Vfs>)>) -> ServerOptions {
    sharing_with(exports, Access::everybody(Terms { squash: Squash::None, ..Terms::default() }))
}

fn sharing_with(exports: Vec<(&str, Arc<dyn Vfs>)>, access: Access) -> ServerOptions {
    let export = |(name, vfs)| Export { access: access.clone(), ..Export::new(name, vfs) };
    let exports = Arc::new(Exports::new(exports.into_iter().map(export).collect(), &[7; 16]).unwrap());
    let core = Config::new(exports);
    ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], ..ServerOptions::new(core) }
}

pub(crate) fn start(options: ServerOptions) -> (Serving, SocketAddr) {
    let serving = Serving::start(options).unwrap();
    let addr = serving.local_addrs()[0];
    (serving, addr)
}

/// Waits until the server's numbers are as they should be.
pub(crate) fn wait_until(serving: &Serving, what: impl Fn(&ServerSnapshot) -> bool) {
    let until = Instant::now() + PATIENCE;
    while !what(&serving.stats()) {
        assert!(Instant::now() < until, "never came to be: {:#?}", serving.stats());
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn xid() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Relaxed)
}

fn message(xid: u32, prog: u32, vers: u32, proc: u32, args: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    message_of(rustix::process::getuid().as_raw(), xid, prog, vers, proc, args)
}

fn message_of(uid: u32, xid: u32, prog: u32, vers: u32, proc: u32, args: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let cred = OpaqueAuth::unix(&AuthUnix { uid, ..AuthUnix::default() });
    let mut out = Vec::new();
    CallHeader { xid, prog, vers, proc, cred, verf: OpaqueAuth::none() }.encode(&mut out);
    args(&mut out);
    out.into()
}

pub(crate) fn nfs_message(xid: u32, call: &Call) -> Bytes {
    message(xid, nfs3::PROGRAM, nfs3::VERSION, call.proc() as u32, |out| call.encode(out))
}

/// The same of another user.
pub(crate) fn nfs_message_of(uid: u32, xid: u32, call: &Call) -> Bytes {
    message_of(uid, xid, nfs3::PROGRAM, nfs3::VERSION, call.proc() as u32, |out| call.encode(out))
}

pub(crate) fn mount_message(xid: u32, call: &mount::Call) -> Bytes {
    message(xid, mount::PROGRAM, mount::VERSION, call.proc(), |out| call.encode(out))
}

pub(crate) fn portmap_message(xid: u32, call: &portmap::Call) -> Bytes {
    message(xid, portmap::PROGRAM, portmap::VERSION, call.proc(), |out| call.encode(out))
}

/// The call's xid, its outcome, and its results.
pub(crate) fn split_reply(reply: &Bytes) -> (u32, Outcome, Reader) {
    let mut r = Reader::new(reply.clone());
    let ReplyHeader { xid, outcome } = ReplyHeader::decode(&mut r).unwrap();
    (xid, outcome, r)
}

pub(crate) fn nfs_reply(call: &Call, reply: &Bytes) -> Reply {
    let (_, outcome, mut r) = split_reply(reply);
    assert_eq!(outcome, Outcome::Success);
    Reply::decode(call.proc(), &mut r).unwrap()
}

/// A record in fragments of `size` bytes.
pub(crate) fn fragments(message: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in message.chunks(size) {
        out.extend_from_slice(&(chunk.len() as u32).to_be_bytes());
        out.extend_from_slice(chunk);
    }
    let last = (message.len() - 1) / size * (size + 4);
    out[last] |= 0x80;
    out
}

/// A way to the server.
pub(crate) trait Wire {
    fn send(&mut self, message: &[u8]);
    fn receive(&mut self) -> Bytes;

    fn exchange(&mut self, message: &[u8]) -> Bytes {
        self.send(message);
        self.receive()
    }

    fn call(&mut self, call: &Call) -> Reply {
        let reply = self.exchange(&nfs_message(xid(), call));
        nfs_reply(call, &reply)
    }

    fn mount(&mut self, path: &str) -> Fh {
        let call = mount::Call::Mnt(path.to_owned().into());
        let (_, outcome, mut r) = split_reply(&self.exchange(&mount_message(xid(), &call)));
        assert_eq!(outcome, Outcome::Success);
        match mount::Reply::decode(call.proc(), &mut r).unwrap() {
            mount::Reply::Mnt(Ok(mounted)) => mounted.fh,
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, dir: &Fh, name: &str) -> Fh {
        match self.call(&create(dir, name)) {
            Reply::Create(Ok(MadeOk { fh: Some(fh), .. })) => fh,
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, fh: &Fh, data: &Bytes) {
        match self.call(&write(fh, data.clone())) {
            Reply::Write(Ok(ok)) => assert_eq!(ok.count as usize, data.len()),
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, fh: &Fh, count: u32) -> Bytes {
        match self.call(&read(fh, count)) {
            Reply::Read(Ok(ok)) => ok.data,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn at(dir: &Fh, name: &str) -> DirOp {
    DirOp { dir: dir.clone(), name: name.to_owned().into() }
}

/// CREATE that fails if the file is there, so that doing it twice shows.
pub(crate) fn create(dir: &Fh, name: &str) -> Call {
    let attr = SetAttr { mode: Some(0o644), ..SetAttr::NONE };
    Call::Create(CreateArgs { at: at(dir, name), how: CreateHow::Guarded(attr) })
}

pub(crate) fn write(fh: &Fh, data: Bytes) -> Call {
    Call::Write(WriteArgs { fh: fh.clone(), offset: 0, count: data.len() as u32, stable: Stable::Unstable, data })
}

pub(crate) fn read(fh: &Fh, count: u32) -> Call {
    Call::Read(ReadArgs { fh: fh.clone(), offset: 0, count })
}

pub(crate) struct Udp(UdpSocket);

impl Udp {
    pub(crate) fn connect(addr: SocketAddr) -> Udp {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(addr).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Udp(socket)
    }
}

impl Wire for Udp {
    fn send(&mut self, message: &[u8]) {
        self.0.send(message).unwrap();
    }

    fn receive(&mut self) -> Bytes {
        let mut buf = vec![0; 1 << 16];
        let n = self.0.recv(&mut buf).unwrap();
        buf.truncate(n);
        buf.into()
    }
}

pub(crate) struct Tcp {
    pub(crate) stream: TcpStream,
    reader: RecordReader,
}

impl Tcp {
    pub(crate) fn connect(addr: SocketAddr) -> Tcp {
        Tcp::over(TcpStream::connect(addr).unwrap())
    }

    /// From this address of this machine.
    pub(crate) fn connect_from(source: Ipv4Addr, addr: SocketAddr) -> Tcp {
        let (inet, stream) = (rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM);
        let socket = rustix::net::socket(inet, stream, None).unwrap();
        rustix::net::bind(&socket, &SocketAddr::from((source, 0))).unwrap();
        rustix::net::connect(&socket, &addr).unwrap();
        Tcp::over(socket.into())
    }

    /// As one that takes no more than about so many bytes before they are read.
    pub(crate) fn connect_narrow(addr: SocketAddr, window: usize) -> Tcp {
        let (inet, stream) = (rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM);
        let socket = rustix::net::socket(inet, stream, None).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, window).unwrap();
        rustix::net::connect(&socket, &addr).unwrap();
        Tcp::over(socket.into())
    }

    fn over(stream: TcpStream) -> Tcp {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Tcp { stream, reader: RecordReader::new(4 << 20) }
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next record; `None` when the server has closed the connection.
    pub(crate) fn try_receive(&mut self) -> Option<Bytes> {
        loop {
            if let Some(record) = self.reader.next_record().unwrap() {
                return Some(record);
            }
            match self.fill() {
                Ok(0) => return None,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return None,
                Err(e) => panic!("{e}"),
            }
        }
    }

    /// Waits for records and drops all that are here; how many.
    pub(crate) fn receive_some(&mut self) -> usize {
        self.receive();
        1 + std::iter::from_fn(|| self.reader.next_record().unwrap()).count()
    }

    fn fill(&mut self) -> std::io::Result<usize> {
        let mut buf = [0; 1 << 16];
        let n = self.stream.read(&mut buf)?;
        self.reader.push(&buf[..n]);
        Ok(n)
    }
}

impl Wire for Tcp {
    fn send(&mut self, message: &[u8]) {
        self.send_raw(&[&mark(message.len()), message].concat());
    }

    fn receive(&mut self) -> Bytes {
        self.try_receive().expect("a reply before the connection ends")
    }
}
