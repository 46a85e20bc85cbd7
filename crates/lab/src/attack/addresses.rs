//! Attacks on what tells clients the way: the portmapper, MOUNT, and UDP itself.

use bytes::Bytes;
use remora_wire::mount;
use remora_wire::nfs3::{self, Call, ReadArgs};
use remora_wire::portmap::{self, IPPROTO_UDP, Mapping};
use remora_wire::rpc::{OpaqueAuth, Outcome};

use super::{Ground, Told};
use crate::raw;

/// CALLIT: sends on what it is told to, for portmappers that have it.
const CALLIT: u32 = 5;

/// Asks the portmapper to forget, to lie, to send for others, and to answer at length.
pub(super) fn portmap_abuse(ground: &Ground) -> Told {
    let datagrams = ground.datagrams(ground.portmap)?;
    let ask = |xid, proc, args: &[u8]| {
        raw::message(xid, (portmap::PROGRAM, portmap::VERSION, proc), OpaqueAuth::none(), args)
    };
    let nfs = Mapping { prog: nfs3::PROGRAM, vers: nfs3::VERSION, prot: IPPROTO_UDP, port: 9 };
    let mut args = Vec::new();
    portmap::Call::Set(nfs).encode(&mut args);
    let mut callit = args.clone();
    callit.extend_from_slice(&[0; 4]);
    let (mut asked, mut factor_max) = (0, 0.0f64);
    while !ground.is_over() {
        for (proc, args) in [(1, &args[..]), (2, &args), (CALLIT, &callit), (4, &[]), (0, &[])] {
            asked += 1;
            let message = ask(asked, proc, args);
            let reply = datagrams.exchange(&message, 3)?;
            let (outcome, mut results) = raw::outcome(&reply)?;
            let as_it_should = match proc {
                CALLIT => outcome == Outcome::ProcUnavail,
                _ => match portmap::Reply::decode(proc, &mut results) {
                    Ok(portmap::Reply::Done(done)) => !done,
                    Ok(portmap::Reply::Dump(list)) => list.iter().all(|m| *m != nfs),
                    Ok(_) => true,
                    Err(_) => false,
                },
            };
            if !as_it_should {
                return Err(format!("procedure {proc}: {outcome}").into());
            }
            if proc != portmap::Call::Dump.proc() {
                factor_max = factor_max.max(reply.len() as f64 / message.len() as f64);
            }
        }
    }
    if factor_max > 1.5 {
        return Err(format!("a reply has {factor_max:.1} times the length of its question").into());
    }
    Ok(format!("{asked} questions; replies at most {factor_max:.1} times as long, but for DUMP by this machine"))
}

/// Mounts under thousands of names, true and false, and asks for the list.
pub(super) fn mount_flood(ground: &Ground) -> Told {
    /// What the list of mounts may have at most, in lines.
    const LISTED_MAX: usize = 1024;
    let mut stream = ground.stream()?;
    let (mut mounts, mut listed) = (0u32, 0);
    while !ground.is_over() {
        for n in 0..500 {
            let path = match n % 5 {
                0 => format!("/srv/{}", "./".repeat(n % 400)),
                1 => format!("/srv/{}", "../".repeat(n % 300)),
                2 => "/".repeat(1024),
                3 => format!("/none{n}"),
                _ => "/srv".to_owned(),
            };
            mounts += 1;
            let reply = stream.exchange(&raw::mount(mounts, &mount::Call::Mnt(path.clone().into())))?;
            let is_forbidden = path.contains("..") && raw::mounted(&reply).is_ok_and(|fh| fh != ground.root);
            if is_forbidden {
                return Err(format!("{path} was mounted").into());
            }
        }
        let dump = mount::Call::Dump;
        let (_, mut results) = raw::outcome(&stream.exchange(&raw::mount(u32::MAX, &dump))?)?;
        if let mount::Reply::Dump(list) = mount::Reply::decode(dump.proc(), &mut results)? {
            listed = list.len();
            if let Some(odd) = list.iter().find(|line| line.dir != "/srv" && line.dir != "/other") {
                return Err(format!("{} is listed", odd.dir.escape_ascii()).into());
            }
        }
        if listed > LISTED_MAX {
            return Err(format!("{listed} mounts are listed").into());
        }
    }
    Ok(format!("{mounts} mounts, {listed} listed"))
}

/// Requests for the largest replies there are, by datagram, as fast as they go; replies are not
/// taken.
pub(super) fn datagram_flood(ground: &Ground) -> Told {
    let sockets = (0..4).map(|_| ground.datagrams(ground.addr)).collect::<std::io::Result<Vec<_>>>()?;
    let read = Call::Read(ReadArgs { fh: ground.file.clone(), offset: 0, count: u32::MAX });
    let message: Bytes = raw::nfs(1, &read);
    let mut sent = 0u64;
    while !ground.is_over() {
        for socket in &sockets {
            sent += u64::from(socket.send(&message).is_ok());
        }
    }
    Ok(format!("{sent} datagrams"))
}
