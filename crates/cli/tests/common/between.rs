//! What stands between clients and a server, and decides what becomes of their calls.

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use remora_wire::mount;
use remora_wire::nfs3::{self, Call, Fh, Proc, Reply, Status};
use remora_wire::rpc::{CallHeader, Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr};

use super::Daemon;

/// What becomes of a call.
pub(crate) enum Fate {
    /// This reaches the server.
    Pass(Call),
    /// It is answered with this.
    Fail(Status),
    Say(Reply),
    /// It is not executed, for this reason.
    Refuse(Outcome),
    /// It is answered with what nobody understands.
    Nonsense,
    /// It is not answered.
    Ignore,
    /// It is executed, its answer is lost, and the server does not know it any more when it comes again.
    Lose(Call),
}

/// Stands between clients and `server`, over UDP: NFS calls have the fate that `judge` says, and
/// datagrams longer than `longest` do not arrive, either way.
pub(crate) fn between(server: &Daemon, longest: usize, judge: impl FnMut(Call) -> Fate + Send + 'static) -> String {
    between_mounting(server, longest, |_| None, judge)
}

/// The same, and MNT of a path brings what `mounts` says, if it says anything.
pub(crate) fn between_mounting(
    server: &Daemon,
    longest: usize,
    mounts: impl Fn(&[u8]) -> Option<Fh> + Send + 'static,
    mut judge: impl FnMut(Call) -> Fate + Send + 'static,
) -> String {
    let (near, far) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    far.connect(("127.0.0.1", server.port())).unwrap();
    let url = format!("nfs://{}/?proto=udp", near.local_addr().unwrap());
    let client = Arc::new(Mutex::new(None::<SocketAddr>));
    let (back, from, to) = (near.try_clone().unwrap(), far.try_clone().unwrap(), client.clone());
    thread::spawn(move || pass_replies(&from, &back, &to, longest));
    thread::spawn(move || {
        let mut buf = [0; 65_536];
        while let Ok((len, peer)) = near.recv_from(&mut buf) {
            *client.lock().unwrap() = Some(peer);
            let mut r = Reader::new(Bytes::copy_from_slice(&buf[..len]));
            let header = CallHeader::decode(&mut r).unwrap();
            let mut message = buf[..len].to_vec();
            if header.prog == mount::PROGRAM
                && header.proc == 1
                && let Some(fh) = mounts(&Bytes::decode(&mut r).unwrap())
            {
                message.clear();
                ReplyHeader { xid: header.xid, outcome: Outcome::Success }.encode(&mut message);
                mount::Reply::Mnt(Ok(mount::Mounted { fh, flavors: vec![1] })).encode(&mut message);
                near.send_to(&message, peer).unwrap();
                continue;
            }
            if header.prog == nfs3::PROGRAM {
                let proc = Proc::from_number(header.proc).unwrap();
                message.clear();
                match judge(Call::decode(proc, &mut r).unwrap()) {
                    Fate::Pass(call) => {
                        header.encode(&mut message);
                        call.encode(&mut message);
                    }
                    Fate::Ignore => continue,
                    Fate::Lose(call) => {
                        executed(&header, &call, far.peer_addr().unwrap());
                        continue;
                    }
                    fate => {
                        let outcome = if let Fate::Refuse(why) = fate { why } else { Outcome::Success };
                        ReplyHeader { xid: header.xid, outcome }.encode(&mut message);
                        match fate {
                            Fate::Fail(status) => Reply::failed(proc, status).encode(&mut message),
                            Fate::Say(reply) => reply.encode(&mut message),
                            Fate::Nonsense => message.extend([255; 8]),
                            _ => {}
                        }
                        near.send_to(&message, peer).unwrap();
                        continue;
                    }
                }
            }
            if message.len() <= longest {
                far.send(&message).unwrap();
            }
        }
    });
    url
}

/// Has `server` do this, under another number.
fn executed(header: &CallHeader, call: &Call, server: SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut message = Vec::new();
    CallHeader { xid: !header.xid, ..header.clone() }.encode(&mut message);
    call.encode(&mut message);
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.send_to(&message, server).unwrap();
    socket.recv(&mut [0; 65_536]).unwrap();
}

/// Passes replies of at most `longest` bytes on to the client.
fn pass_replies(from: &UdpSocket, back: &UdpSocket, client: &Mutex<Option<SocketAddr>>, longest: usize) {
    let mut buf = [0; 65_536];
    while let Ok(len) = from.recv(&mut buf) {
        let client = *client.lock().unwrap();
        if let (true, Some(client)) = (len <= longest, client) {
            back.send_to(&buf[..len], client).unwrap();
        }
    }
}
