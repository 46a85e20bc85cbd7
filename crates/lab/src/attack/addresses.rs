//! Attacks on the portmapper, MOUNT and UDP addressing.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use remora_wire::nfs3::{Call, Fh, ReadArgs, Reply};
use remora_wire::rpc::{OpaqueAuth, Outcome};
use remora_wire::rpcbind::{Netid, Service};
use remora_wire::{Xdr, mount, nfs3, portmap, rpcbind};

use super::ground::{AttackResult, Ground};
use crate::raw;

/// CALLIT: forwards a call, where supported.
const CALLIT: u32 = 5;
const DUMP: u32 = 4;
/// Least data of a large datagram reply, in bytes.
const LARGE: usize = 32 << 10;

/// SET, UNSET, CALLIT and DUMP requests to the portmapper, in each version.
pub(super) fn portmap_abuse(ground: &Ground) -> AttackResult {
    let datagrams = ground.datagrams(ground.portmap)?;
    let lie = Service {
        prog: nfs3::PROGRAM,
        vers: nfs3::VERSION,
        netid: Netid::Udp,
        at: SocketAddr::new(ground.portmap.ip(), 9),
    };
    let (mapping, binding) = (lie.mapping().map(|m| m.to_bytes()).unwrap_or_default(), lie.binding("").to_bytes());
    let (mut asked, mut factor_max) = (0, 0.0f64);
    while !ground.is_over() {
        for (vers, entry) in [(portmap::VERSION, &mapping), (3, &binding), (4, &binding)] {
            let callit = [entry, &[0; 4][..]].concat();
            for (proc, args) in [(1, &entry[..]), (2, entry), (CALLIT, &callit), (DUMP, &[]), (0, &[])] {
                asked += 1;
                let message = raw::message(
                    asked,
                    raw::Procedure { prog: portmap::PROGRAM, vers, proc },
                    OpaqueAuth::none(),
                    args,
                );
                let reply = datagrams.exchange(&message, 3)?;
                if !is_refused(&reply, &lie, vers, proc)? {
                    return Err(format!("version {vers}, procedure {proc} was executed").into());
                }
                if proc != DUMP {
                    factor_max = factor_max.max(reply.len() as f64 / message.len() as f64);
                }
            }
        }
    }
    if factor_max > 1.5 {
        return Err(format!("a reply is {factor_max:.1} times as long as its request").into());
    }
    Ok(format!("{asked} requests; replies at most {factor_max:.1} times as long, except DUMP from this machine"))
}

/// Whether the request was refused and the false entry `lie` is not listed.
fn is_refused(reply: &Bytes, lie: &Service, vers: u32, proc: u32) -> io::Result<bool> {
    let (outcome, mut results) = raw::outcome(reply)?;
    Ok(match (proc, vers) {
        (CALLIT, _) => outcome == Outcome::ProcUnavail,
        (0, _) => outcome == Outcome::Success,
        (_, portmap::VERSION) => match portmap::Reply::decode(proc, &mut results) {
            Ok(portmap::Reply::Done(done)) => !done,
            Ok(portmap::Reply::Dump(list)) => list.iter().all(|m| Some(*m) != lie.mapping()),
            _ => false,
        },
        _ => match rpcbind::Reply::decode(proc, &mut results) {
            Ok(rpcbind::Reply::Done(done)) => !done,
            Ok(rpcbind::Reply::Dump(list)) => list.iter().all(|b| b.addr != rpcbind::universal(lie.at)),
            _ => false,
        },
    })
}

/// MNT of thousands of existing and missing paths, then DUMP.
pub(super) fn mount_flood(ground: &Ground) -> AttackResult {
    /// Most entries of the list of mounts.
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
            let mounted = raw::mounted(&reply).ok();
            if !may_be(&path, mounted.as_ref(), &ground.root) {
                return Err(format!("{path}: {mounted:?} was mounted").into());
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

/// Whether MNT returned the export's own directory for its path, and nothing for any other path, whatever the
/// spelling.
fn may_be(path: &str, mounted: Option<&Fh>, root: &Fh) -> bool {
    match path.trim_end_matches('/') {
        "/srv" => mounted == Some(root),
        path if path.starts_with("/srv/") => mounted.is_none_or(|fh| fh == root),
        _ => mounted.is_none(),
    }
}

/// Requests for the largest datagram replies, at full speed. Replies are not read.
pub(super) fn datagram_flood(ground: &Ground) -> AttackResult {
    ground.fill()?;
    let sockets = (0..4).map(|_| ground.datagrams(ground.addr)).collect::<std::io::Result<Vec<_>>>()?;
    let read = Call::Read(ReadArgs { fh: ground.file.clone(), offset: 0, count: u32::MAX });
    let message: Bytes = raw::nfs(1, &read);
    let length = raw::results(&read, &ground.datagrams(ground.addr)?.exchange(&message, 3)?)?;
    let length = match length {
        Reply::Read(Ok(ok)) if ok.data.len() >= LARGE => ok.data.len(),
        other => return Err(format!("not a large reply: {:?}", other.status()).into()),
    };
    let mut sent = 0u64;
    while !ground.is_over() {
        for socket in &sockets {
            sent += u64::from(socket.send(&message).is_ok());
        }
    }
    Ok(format!("{sent} datagrams, each for {length} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_path_is_its_export_or_refused() {
        let [root, other] = [&b"root"[..], b"other"].map(|fh| Fh(Bytes::from_static(fh)));
        for (path, mounted, is_right) in [
            ("/srv", Some(&root), true),
            ("/srv", None, false),
            ("/srv", Some(&other), false),
            ("/srv/", Some(&root), true),
            ("/srv/././", Some(&root), true),
            ("/srv/././", None, true),
            ("/srv/././", Some(&other), false),
            ("/srv/../../", None, true),
            ("/srv/../../", Some(&other), false),
            ("////", None, true),
            ("////", Some(&root), false),
            ("/none3", None, true),
            ("/none3", Some(&root), false),
            ("/none3", Some(&other), false),
        ] {
            assert_eq!(may_be(path, mounted, &root), is_right, "{path} {mounted:?}");
        }
    }
}
