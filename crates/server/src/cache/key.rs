//! What makes two requests the same.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use highway::{HighwayHash, HighwayHasher};
use remora_base::{Path, Peer, Rng};
use remora_wire::nfs3::Proc;
use remora_wire::rpc::OpaqueAuth;
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::Version;

/// A request of the NFS program, as caches know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Where it came from.
    pub peer: Peer,
    /// Its transaction id.
    pub xid: u32,
    /// The version of NFS it was made in: their arguments can be alike and their replies are
    /// not.
    pub version: Version,
    /// Its procedure, as it is executed: version 3's.
    pub proc: Proc,
    /// Length of the arguments in bytes.
    pub len: u32,
    /// Keyed hash of credential and arguments, and of the transaction id and whom it came from, so that
    /// requests that are otherwise alike are not in one another's way. All bytes count: a wrapped
    /// fragment id can splice two datagrams, and the pieces may differ only at the end.
    pub hash: u128,
}

/// Everything about a request but, on streams, the port it came from, which may change when a
/// client connects again. The program is the cache's own: it serves one.
///
/// The hash, which is of nearly all of it, comes first so that comparing keys mostly ends there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    hash: u128,
    xid: u32,
    len: u32,
    version: Version,
    proc: Proc,
    /// The port of a datagram; `None` on streams.
    port: Option<u16>,
    pub(super) client: IpAddr,
}

/// The hash is a hash already, and equal keys have equal ones.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash as u64);
    }
}

impl Key {
    /// Bits that are spread evenly and have nothing to do with those that [`Hash`] takes.
    pub(super) fn spread(&self) -> u32 {
        (self.hash >> 64) as u32
    }
}

/// What the caches of 1989 compared: the xid, the procedure, and whom it came from. (There
/// was one version then.)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct XidKey {
    xid: u32,
    version: Version,
    proc: Proc,
    from: SocketAddr,
}

impl Request {
    pub(super) fn key(&self) -> Key {
        Key {
            hash: self.hash,
            xid: self.xid,
            len: self.len,
            version: self.version,
            proc: self.proc,
            port: (!self.is_stream()).then(|| self.peer.addr.port()),
            client: self.peer.addr.ip().to_canonical(),
        }
    }

    pub(super) fn xid_key(&self) -> XidKey {
        XidKey { xid: self.xid, version: self.version, proc: self.proc, from: self.peer.addr }
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self.peer.path, Path::Stream(_))
    }
}

/// Arguments of this many bytes and more are hashed by HighwayHash, whose start is dearer and
/// whose every byte is three times cheaper than SipHash's.
const LONG: usize = 1024;

/// The secret of the hash in [`Request`]: without it nobody can make two requests that look
/// the same.
#[derive(Clone, Debug)]
pub struct Keys {
    short: SipHasher13,
    long: highway::Key,
}

impl Keys {
    /// The secret of the server of `seed`.
    pub fn new(seed: u64) -> Keys {
        let mut random = Rng::stream(seed, "duplicate request cache");
        let mut key = [0; 16];
        random.fill(&mut key);
        Keys { short: SipHasher13::new_with_key(&key), long: highway::Key([0; 4].map(|_| random.next_u64())) }
    }

    /// The request of version 3 with this credential and these arguments.
    pub fn request(&self, peer: Peer, xid: u32, proc: Proc, cred: &OpaqueAuth, args: &[u8]) -> Request {
        // An AUTH_SYS credential begins with a stamp, a time for instance, that some clients
        // draw anew for every retransmission.
        let stamp = if cred.flavor == OpaqueAuth::UNIX { 4 } else { 0 };
        let body = cred.body.get(stamp..).unwrap_or_default();
        let mut h = self.short;
        h.write_u32(xid);
        match peer.addr.ip().to_canonical() {
            IpAddr::V4(ip) => h.write(&ip.octets()),
            IpAddr::V6(ip) => h.write(&ip.octets()),
        }
        if peer.path == Path::Datagram {
            h.write_u16(peer.addr.port());
        }
        h.write_u32(cred.flavor);
        h.write_usize(body.len());
        h.write(body);
        if args.len() < LONG {
            h.write(args);
        } else {
            let digest = HighwayHasher::new(self.long).hash128(args);
            digest.into_iter().for_each(|word| h.write_u64(word));
        }
        let (len, hash) = (u32::try_from(args.len()).unwrap_or(u32::MAX), h.finish128().as_u128());
        Request { peer, xid, version: Version::V3, proc, len, hash }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::rpc::AuthUnix;

    /// Or else all of them would be in one place of the index, and looked at one by one.
    #[test]
    fn requests_that_are_alike_but_for_the_xid_or_the_client_have_different_hashes() {
        let keys = Keys::new(1);
        let hash = |peer, xid| keys.request(peer, xid, Proc::Write, &OpaqueAuth::none(), b"args").hash;
        let datagram = |addr: &str| Peer::datagram(addr.parse().unwrap());
        let stream = |port, id| Peer::stream(([10, 0, 0, 1], port).into(), id);
        let base = datagram("10.0.0.1:700");
        for other in ["10.0.0.2:700", "10.0.0.1:701", "[2001:db8::1]:700"] {
            assert_ne!(hash(base, 1), hash(datagram(other), 1), "{other}");
        }
        assert_ne!(hash(base, 1), hash(base, 2));
        assert_ne!(hash(stream(700, 1), 1), hash(stream(700, 1), 2));
        assert_eq!(hash(base, 1), hash(datagram("[::ffff:10.0.0.1]:700"), 1));
        assert_eq!(hash(stream(700, 1), 1), hash(stream(701, 2), 1), "it has connected again");
    }

    #[test]
    fn every_part_but_the_stamp_tells_requests_apart() {
        let peer = Peer::datagram("10.0.0.1:700".parse().unwrap());
        let (keys, others) = (Keys::new(1), Keys::new(2));
        let cred = |stamp, uid| OpaqueAuth::unix(&AuthUnix { stamp, uid, ..AuthUnix::default() });
        let make = |keys: &Keys, cred: &OpaqueAuth, args: &[u8]| keys.request(peer, 1, Proc::Write, cred, args).key();
        let base = make(&keys, &cred(1, 1), b"args");
        assert_eq!(base, make(&keys, &cred(2, 1), b"args"));
        assert_ne!(base, make(&keys, &cred(1, 2), b"args"));
        assert_ne!(base, make(&keys, &OpaqueAuth::none(), b"args"));
        assert_ne!(base, make(&keys, &cred(1, 1), b"argS"));
        assert_ne!(base.hash, make(&keys, &cred(1, 1), b"args\0").hash);
        let long = [0; 4096];
        let mut spliced = long;
        spliced[4095] = 1;
        assert_ne!(make(&keys, &cred(1, 1), &long), make(&keys, &cred(1, 1), &spliced));
        assert_ne!(base.hash, make(&others, &cred(1, 1), b"args").hash);
    }
}
