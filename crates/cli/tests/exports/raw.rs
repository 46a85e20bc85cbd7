//! A client that is nothing but calls: of any user, from any address and port.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use bytes::Bytes;
use remora_wire::mount::{self, MountError};
use remora_wire::nfs3::{self, Call, CreateArgs, CreateHow, DirOp, Fh, Reply, SetAttr, Stable, Status};
use remora_wire::rpc::{AuthUnix, CallHeader, OpaqueAuth, Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr};

use crate::common::Daemon;

/// No answer takes longer.
const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Client {
    socket: UdpSocket,
    cred: AuthUnix,
    xid: u32,
}

impl Client {
    /// Root at `addr` (all of 127.0.0.0/8 is this machine).
    pub(crate) fn at(server: &Daemon, addr: &str) -> Client {
        Client::to(server.addr, addr)
    }

    /// The same, of the server there.
    pub(crate) fn to(server: SocketAddr, addr: &str) -> Client {
        let addr = if addr.contains(':') { addr.to_owned() } else { format!("{addr}:0") };
        let socket = UdpSocket::bind(&addr).unwrap_or_else(|e| panic!("{addr}: {e}"));
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        // Different for each, so that no cache takes one for another.
        let xid = u32::from(socket.local_addr().unwrap().port()) << 16;
        Client { socket, cred: AuthUnix::default(), xid }
    }

    /// The same place, somebody else.
    pub(crate) fn act_as(&mut self, uid: u32, gid: u32, gids: &[u32]) {
        self.cred = AuthUnix { uid, gid, gids: gids.to_vec(), ..AuthUnix::default() };
    }

    pub(crate) fn call(&mut self, call: &Call) -> Reply {
        let mut args = Vec::new();
        call.encode(&mut args);
        let mut r = self.ask(nfs3::PROGRAM, nfs3::VERSION, call.proc() as u32, &args);
        Reply::decode(call.proc(), &mut r).unwrap()
    }

    /// How a call fails; `None` if it does not.
    pub(crate) fn fails(&mut self, call: &Call) -> Option<Status> {
        self.call(call).status()
    }

    pub(crate) fn mount(&mut self, path: &str) -> Result<Fh, MountError> {
        match self.ask_mount(&mount::Call::Mnt(Bytes::copy_from_slice(path.as_bytes()))) {
            mount::Reply::Mnt(result) => result.map(|m| m.fh),
            other => panic!("{other:?}"),
        }
    }

    /// What MOUNT's EXPORT lists: paths and who may mount them.
    pub(crate) fn exports(&mut self) -> Vec<(String, Vec<String>)> {
        let text = |b: &Bytes| String::from_utf8(b.to_vec()).unwrap();
        match self.ask_mount(&mount::Call::Export) {
            mount::Reply::Export(list) => {
                list.iter().map(|e| (text(&e.dir), e.groups.iter().map(text).collect())).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// What MOUNT's DUMP lists: hosts and paths.
    pub(crate) fn mounts(&mut self) -> Vec<(String, String)> {
        let text = |b: &Bytes| String::from_utf8(b.to_vec()).unwrap();
        match self.ask_mount(&mount::Call::Dump) {
            mount::Reply::Dump(list) => list.iter().map(|m| (text(&m.host), text(&m.dir))).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// The handle of `name` in `dir`.
    pub(crate) fn lookup(&mut self, dir: &Fh, name: &str) -> Fh {
        match self.call(&Call::Lookup(at(dir, name))) {
            Reply::Lookup(Ok(found)) => found.fh,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// The write verifier of the file system that `fh` is in.
    pub(crate) fn verifier(&mut self, fh: &Fh) -> [u8; 8] {
        match self.call(&write(fh)) {
            Reply::Write(Ok(written)) => written.verf,
            other => panic!("{other:?}"),
        }
    }

    fn ask_mount(&mut self, call: &mount::Call) -> mount::Reply {
        let mut args = Vec::new();
        call.encode(&mut args);
        let mut r = self.ask(mount::PROGRAM, mount::VERSION, call.proc(), &args);
        mount::Reply::decode(call.proc(), &mut r).unwrap()
    }

    fn ask(&mut self, prog: u32, vers: u32, proc: u32, args: &[u8]) -> Reader {
        self.xid += 1;
        let (xid, cred) = (self.xid, OpaqueAuth::unix(&self.cred));
        let mut message = Vec::new();
        CallHeader { xid, prog, vers, proc, cred, verf: OpaqueAuth::none() }.encode(&mut message);
        message.extend_from_slice(args);
        self.socket.send(&message).unwrap();
        let mut reply = vec![0; 1 << 16];
        let len = self.socket.recv(&mut reply).unwrap();
        reply.truncate(len);
        let mut r = Reader::new(reply.into());
        assert_eq!(ReplyHeader::decode(&mut r), Ok(ReplyHeader { xid, outcome: Outcome::Success }));
        r
    }
}

pub(crate) fn at(dir: &Fh, name: &str) -> DirOp {
    DirOp { dir: dir.clone(), name: Bytes::copy_from_slice(name.as_bytes()) }
}

pub(crate) fn create(dir: &Fh, name: &str) -> Call {
    let attr = SetAttr { mode: Some(0o644), ..SetAttr::NONE };
    Call::Create(CreateArgs { at: at(dir, name), how: CreateHow::Unchecked(attr) })
}

pub(crate) fn read(fh: &Fh) -> Call {
    Call::Read(nfs3::ReadArgs { fh: fh.clone(), offset: 0, count: 100 })
}

pub(crate) fn write(fh: &Fh) -> Call {
    let (data, stable) = (Bytes::from_static(b"new"), Stable::FileSync);
    Call::Write(nfs3::WriteArgs { fh: fh.clone(), offset: 0, count: 3, stable, data })
}

pub(crate) fn set(fh: &Fh, attr: SetAttr) -> Call {
    Call::SetAttr(nfs3::SetAttrArgs { fh: fh.clone(), attr, guard: None })
}
