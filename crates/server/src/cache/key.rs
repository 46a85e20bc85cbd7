//! Keys: what makes two requests duplicates.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use highway::{HighwayHash, HighwayHasher};
use remora_base::{Path, Peer, Rng};
use remora_wire::nfs3::Proc;
use remora_wire::rpc::OpaqueAuth;
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::Version;

/// An NFS request, for the caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub peer: Peer,
    /// The transaction id.
    pub xid: u32,
    /// The NFS version: arguments of both may be equal, while the replies differ.
    pub version: Version,
    /// The NFSv3 procedure that is executed.
    pub proc: Proc,
    /// Length of the arguments in bytes.
    pub len: u32,
    /// Keyed hash of credential, arguments, XID and source address. It includes the XID and the source so that
    /// similar requests do not collide. All bytes count: a wrapped fragment id can splice two datagrams that differ
    /// only at the end.
    pub hash: u128,
}

/// Identifies a request: everything but, on streams, the port, which changes when a client reconnects.
///
/// The hash covers nearly all of it and comes first, so that most comparisons end there.
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

/// Equal keys have equal hashes, so the hash is used as it is.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash as u64);
    }
}

impl Key {
    /// Uniform bits, independent of those that [`Hash`] uses.
    pub(super) fn spread(&self) -> u32 {
        (self.hash >> 64) as u32
    }
}

/// The key of the caches of 1989: XID, procedure and source (and the version, of which there was one then).
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

/// Arguments of at least this many bytes are hashed with HighwayHash, which is slower to start and three times faster
/// for each byte than SipHash.
const LONG: usize = 1024;

/// The secret of the hash in [`Request`]. Without it a client cannot make two requests collide.
#[derive(Clone, Debug)]
pub struct Keys {
    short: SipHasher13,
    long: highway::Key,
}

impl Keys {
    /// Generates the secret from `seed`.
    pub fn new(seed: u64) -> Keys {
        let mut random = Rng::stream(seed, "duplicate request cache");
        let mut key = [0; 16];
        random.fill(&mut key);
        Keys { short: SipHasher13::new_with_key(&key), long: highway::Key([0; 4].map(|_| random.next_u64())) }
    }

    /// The NFSv3 request with this credential and these arguments.
    pub fn request(&self, peer: Peer, xid: u32, proc: Proc, cred: &OpaqueAuth, args: &[u8]) -> Request {
        // An AUTH_SYS credential begins with a stamp, which some clients change in every retransmission.
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

    /// Equal hashes would share a slot of the index and slow the search down.
    #[test]
    fn hash_differs_by_xid_and_client() {
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
