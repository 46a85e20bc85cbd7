//! Address validation, as in QUIC (RFC 9000, section 8): the source address of a datagram may be forged, so the
//! server sends a bounded number of bytes to an address that has not proved that it receives.
//!
//! An address is validated by one of these:
//! - Any message over a stream: TCP and ATP begin with a handshake.
//! - Three READs in a row that continue where the reply to another READ ended. Only the receiver of a reply knows
//!   where that is: a READ that exceeds the credit below gets 1 to 2 KiB, by a keyed hash, and a wrong guess makes the
//!   reply worthless and the count begin again. NFSv3 allows a short READ (RFC 1813, section 3.3.6), so this costs no
//!   other round trips. It serves clients that only use UDP (`proto=udp,mountproto=udp`) and read large files without
//!   listing a large directory. Boot loaders do not need it: their READs of 1 KiB fit the credit.
//! - A READDIR or READDIRPLUS of NFSv3 that continues with the verifier of the page before, which is a keyed hash of
//!   64 bits for such an address.
//!
//! A validation expires after a [day](VALID_FOR) without a datagram from the address. An address without one gets at
//! most [`FACTOR`] times the bytes that it sent, IP and UDP headers included. A reply that exceeds this is not sent,
//! and the client's retransmission counts, too. This concerns NFSv2 READs above some 4 KiB, because a client takes a
//! short one for the end of the file, and symbolic links of some kilobytes.
//!
//! Only addresses that may use an export have an entry. Refusals to others are shorter than [`FACTOR`] times the
//! headers of any datagram, so they need none.
//!
//! Not prevented: reflection to an address that was validated, while datagrams with that source arrive; and guesses
//! of three lengths of 10 bits each (about 2^30 datagrams).

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use remora_base::{Path, Peer, Time};
use remora_wire::nfs3::{Call, Fh};
use siphasher::sip::SipHasher24;

use crate::job::Form;

/// How long an unused validation is valid.
const VALID_FOR: Duration = Duration::from_secs(24 * 3600);
/// Bytes sent for each byte received.
const FACTOR: usize = 28;
/// Most bytes of credit of an address.
const CREDIT_MAX: usize = 64 << 10;
/// Bytes of the headers of IPv4 and UDP.
const HEADERS: usize = 28;
/// The least data of a READ or a directory page, in bytes.
const DATA_MIN: u32 = 1024;
/// Most bytes of a reply in addition to the data that the call asks for, IP and UDP headers included.
const REPLY_OVERHEAD: usize = 320;
/// READs that must continue at the right offset.
const ECHOES: u8 = 3;
/// Short replies remembered for an address: clients send several READs at a time.
const SHORT_READS_MAX: usize = 32;
/// Most addresses in a generation.
const GENERATION: usize = 1024;

/// The state of the addresses that send datagrams.
#[derive(Debug)]
pub(crate) struct Validation {
    is_on: bool,
    now: Time,
    hasher: SipHasher24,
    proved: Recent<Time>,
    unproved: Recent<Host>,
}

/// An address that is not validated.
#[derive(Debug, Default)]
struct Host {
    /// Bytes that may be sent to it.
    credit: usize,
    /// The credit that is not assigned to a call: the replies to concurrent calls share it.
    unassigned: usize,
    /// The oldest first.
    short_reads: VecDeque<ShortRead>,
    /// How many READs in a row have continued at the right offset.
    echoes: u8,
}

/// A READ that got a short reply.
#[derive(Clone, Copy, Debug)]
struct ShortRead {
    /// The hash of the file's handle.
    file: u64,
    offset: u64,
    length: u32,
}

impl ShortRead {
    /// Whether a READ of `file` at `offset` may be an attempt to continue where the reply to this READ ended, by a
    /// right or a wrong guess of that reply's length.
    fn is_guessed_by(&self, file: u64, offset: u64) -> bool {
        let lengths = u64::from(DATA_MIN)..u64::from(2 * DATA_MIN);
        self.file == file && offset.checked_sub(self.offset).is_some_and(|length| lengths.contains(&length))
    }
}

impl Host {
    fn receive(&mut self, bytes: usize) {
        let more = FACTOR * (bytes + HEADERS);
        self.credit = (self.credit + more).min(CREDIT_MAX);
        self.unassigned = (self.unassigned + more).min(self.credit);
    }

    /// Assigns `count` bytes of data to a call if the credit suffices.
    fn assign_all(&mut self, count: u32) -> bool {
        let fits = self.unassigned >= count as usize + REPLY_OVERHEAD;
        self.assign(if fits { count } else { 2 * DATA_MIN });
        fits
    }

    /// Assigns at most `count` bytes of data to a call.
    fn assign(&mut self, count: u32) -> u32 {
        let room = self.unassigned.saturating_sub(REPLY_OVERHEAD);
        let count = count.min(u32::try_from(room).unwrap_or(u32::MAX));
        self.unassigned = self.unassigned.saturating_sub(count as usize + REPLY_OVERHEAD);
        count
    }
}

/// A call as far as it may be executed.
#[derive(Debug)]
pub(crate) struct Limited {
    pub(crate) call: Call,
    /// Whether it is for less than the client asked for.
    pub(crate) is_cut: bool,
    /// The verifier of a directory page; zeros for none.
    pub(crate) listing_verf: [u8; 8],
}

impl Validation {
    /// `seed` must not be guessable on a real host.
    pub(crate) fn new(is_on: bool, seed: u64) -> Validation {
        let hasher = SipHasher24::new_with_keys(seed, 0x7661_6c69_6461_7465);
        Validation { is_on, now: Time::ZERO, hasher, proved: Recent::default(), unproved: Recent::default() }
    }

    /// Notes a datagram, or the first message of a stream, from an address that may use an export.
    pub(crate) fn heard(&mut self, now: Time, from: Peer, bytes: usize) {
        self.now = now;
        if !self.is_on {
            return;
        }
        let ip = from.addr.ip().to_canonical();
        match from.path {
            Path::Stream(_) => self.prove(ip),
            Path::Datagram if self.has_proved(ip) => self.prove(ip),
            Path::Datagram => self.unproved.entry(ip).receive(bytes),
        }
    }

    /// Whether the bytes sent to `to` are bounded.
    pub(crate) fn bounds(&self, to: Peer) -> bool {
        self.is_on && to.path == Path::Datagram && !self.has_proved(to.addr.ip().to_canonical())
    }

    /// Limits a call from `from`.
    pub(crate) fn limit(&mut self, from: Peer, form: &Form, mut call: Call) -> Limited {
        if self.is_on && from.path == Path::Datagram && *form == Form::V3 {
            self.take_proof(from.addr.ip().to_canonical(), &mut call);
        }
        if !self.bounds(from) {
            return Limited { call, is_cut: false, listing_verf: [0; 8] };
        }
        let ip = from.addr.ip().to_canonical();
        let (mut is_cut, mut listing_verf) = (false, [0; 8]);
        let mut cut = |count: &mut u32, most: u32| {
            is_cut = *count > most;
            *count = (*count).min(most);
        };
        match &mut call {
            Call::Read(a) if *form == Form::V3 => {
                let most = match self.unproved.entry(ip).assign_all(a.count) {
                    true => a.count,
                    false => self.read_max(ip, &a.fh, a.offset, a.count),
                };
                cut(&mut a.count, most);
            }
            Call::ReadDir(a) => {
                listing_verf = self.listing_verf(ip, &a.dir);
                let most = self.unproved.entry(ip).assign(a.count).max(DATA_MIN);
                cut(&mut a.count, most);
            }
            Call::ReadDirPlus(a) => {
                listing_verf = self.listing_verf(ip, &a.dir);
                let most = self.unproved.entry(ip).assign(a.max_count).max(DATA_MIN);
                cut(&mut a.max_count, most);
            }
            _ => _ = self.unproved.entry(ip).assign(0),
        }
        Limited { call, is_cut, listing_verf }
    }

    /// Validates an address whose READs continue where the replies ended, or whose listing continues with its verifier,
    /// which the call then loses.
    fn take_proof(&mut self, ip: IpAddr, call: &mut Call) {
        let (dir, verf) = match call {
            Call::Read(a) => return self.take_echo(ip, &a.fh, a.offset),
            Call::ReadDir(a) if a.cookie != 0 => (&a.dir, &mut a.verf),
            Call::ReadDirPlus(a) if a.cookie != 0 => (&a.dir, &mut a.verf),
            _ => return,
        };
        if *verf == self.listing_verf(ip, dir) {
            *verf = [0; 8];
            self.prove(ip);
        }
    }

    /// Counts a READ that continues where the reply to a short one ended.
    fn take_echo(&mut self, ip: IpAddr, fh: &Fh, offset: u64) {
        let file = self.file(fh);
        let Some(host) = self.unproved.get_mut(ip) else { return };
        let (mut is_guess, mut is_right) = (false, true);
        host.short_reads.retain(|short| {
            let is_guessed = short.is_guessed_by(file, offset);
            if is_guessed {
                is_guess = true;
                // One READ must not guess the lengths of several replies.
                is_right &= offset == short.offset + u64::from(short.length);
            }
            !is_guessed
        });
        if !is_guess {
            return;
        }
        host.echoes = if is_right { host.echoes + 1 } else { 0 };
        if host.echoes >= ECHOES {
            self.prove(ip);
        }
    }

    fn file(&self, fh: &Fh) -> u64 {
        self.hash(|hasher| hasher.write(&fh.0))
    }

    /// A verifier that only the server and the receiver of the page know.
    fn listing_verf(&self, ip: IpAddr, dir: &Fh) -> [u8; 8] {
        self.hash(|hasher| (ip, &dir.0[..], "listing").hash(hasher)).to_be_bytes()
    }

    /// Whether a reply of `bytes` may be sent to `to`. Charges the credit.
    pub(crate) fn may_send(&mut self, to: Peer, bytes: usize) -> bool {
        if !self.bounds(to) {
            return true;
        }
        let Some(host) = self.unproved.get_mut(to.addr.ip().to_canonical()) else {
            return bytes + HEADERS <= FACTOR * HEADERS;
        };
        match host.credit.checked_sub(bytes + HEADERS) {
            Some(left) => {
                host.credit = left;
                true
            }
            None => false,
        }
    }

    /// How many bytes of a READ are answered.
    fn read_max(&mut self, ip: IpAddr, fh: &Fh, offset: u64, count: u32) -> u32 {
        let file = self.file(fh);
        // Always the same, so that every reply to a retransmitted READ has the same length.
        let hash = self.hash(|hasher| (ip, file, offset).hash(hasher));
        let length = DATA_MIN + hash as u32 % DATA_MIN;
        let host = self.unproved.entry(ip);
        let is_known = host.short_reads.iter().any(|short| (short.file, short.offset) == (file, offset));
        if count > length && !is_known {
            if host.short_reads.len() >= SHORT_READS_MAX {
                host.short_reads.pop_front();
            }
            host.short_reads.push_back(ShortRead { file, offset, length });
        }
        length
    }

    fn hash(&self, write: impl FnOnce(&mut SipHasher24)) -> u64 {
        let mut hasher = self.hasher;
        write(&mut hasher);
        hasher.finish()
    }

    fn prove(&mut self, ip: IpAddr) {
        *self.proved.entry(ip) = self.now + VALID_FOR;
        self.unproved.remove(ip);
    }

    fn has_proved(&self, ip: IpAddr) -> bool {
        self.proved.get(ip).is_some_and(|until| self.now < *until)
    }
}

/// A bounded map by address, in two generations: a full young generation replaces the old one.
#[derive(Debug)]
struct Recent<T> {
    young: BTreeMap<IpAddr, T>,
    old: BTreeMap<IpAddr, T>,
}

impl<T> Default for Recent<T> {
    fn default() -> Recent<T> {
        Recent { young: BTreeMap::new(), old: BTreeMap::new() }
    }
}

impl<T: Default> Recent<T> {
    fn get(&self, ip: IpAddr) -> Option<&T> {
        self.young.get(&ip).or_else(|| self.old.get(&ip))
    }

    fn get_mut(&mut self, ip: IpAddr) -> Option<&mut T> {
        match self.young.get_mut(&ip) {
            Some(value) => Some(value),
            None => self.old.get_mut(&ip),
        }
    }

    fn entry(&mut self, ip: IpAddr) -> &mut T {
        if !self.young.contains_key(&ip) {
            let known = self.old.remove(&ip).unwrap_or_default();
            if self.young.len() >= GENERATION {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(ip, known);
        }
        self.young.entry(ip).or_default()
    }

    fn remove(&mut self, ip: IpAddr) {
        self.young.remove(&ip);
        self.old.remove(&ip);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use remora_wire::nfs2;
    use remora_wire::nfs3::{ReadArgs, ReadDirArgs, ReadDirPlusArgs};

    use super::*;

    fn udp(n: u32) -> Peer {
        Peer::datagram((std::net::Ipv4Addr::from_bits(n), 700).into())
    }

    fn fh() -> Fh {
        Fh(Bytes::from_static(&[3; 36]))
    }

    fn read(offset: u64, count: u32) -> Call {
        Call::Read(ReadArgs { fh: fh(), offset, count })
    }

    fn count(call: &Call) -> u32 {
        match call {
            Call::Read(a) => a.count,
            Call::ReadDir(a) => a.count,
            Call::ReadDirPlus(a) => a.max_count,
            _ => 0,
        }
    }

    fn limited(v: &mut Validation, call: Call) -> u32 {
        count(&v.limit(udp(1), &Form::V3, call).call)
    }

    #[test]
    fn reader_continuing_at_reply_ends_is_validated() {
        let mut v = Validation::new(true, 1);
        let mut offset = 0;
        for _ in 0..ECHOES {
            let got = limited(&mut v, read(offset, 32 << 10));
            assert!((DATA_MIN..2 * DATA_MIN).contains(&got), "{got}");
            assert!(v.bounds(udp(1)));
            offset += u64::from(got);
        }
        assert_eq!(limited(&mut v, read(offset, 32 << 10)), 32 << 10);
        assert!(!v.bounds(udp(1)) && v.bounds(udp(2)));
        let half = VALID_FOR / 2;
        for used in [half, 2 * half, 3 * half] {
            v.heard(Time::ZERO + used, udp(1), 100);
            assert!(!v.bounds(udp(1)), "use renews it");
        }
        v.heard(Time::ZERO + 5 * half, udp(1), 100);
        assert!(v.bounds(udp(1)), "unused for a day");
    }

    #[test]
    fn readers_of_several_blocks_and_retransmissions_are_proved() {
        let mut v = Validation::new(true, 1);
        let mut offsets: Vec<u64> = (0..16).map(|block| block << 15).collect();
        for _ in 0..ECHOES {
            for offset in &mut offsets {
                let (first, again) =
                    (limited(&mut v, read(*offset, 16 << 10)), limited(&mut v, read(*offset, 16 << 10)));
                assert_eq!(first, again);
                *offset += u64::from(first);
            }
        }
        assert_eq!(limited(&mut v, read(offsets[5], 16 << 10)), 16 << 10);
    }

    #[test]
    fn continuations_within_the_credit_are_counted() {
        let mut v = Validation::new(true, 1);
        let ends: Vec<u64> = (0..u64::from(ECHOES))
            .map(|block| (block << 15) + u64::from(limited(&mut v, read(block << 15, 8 << 10))))
            .collect();
        for end in ends {
            assert!(v.bounds(udp(1)));
            v.heard(Time::ZERO, udp(1), 150);
            assert_eq!(limited(&mut v, read(end, 4096)), 4096);
        }
        assert!(!v.bounds(udp(1)));
    }

    #[test]
    fn one_read_does_not_guess_many_lengths() {
        let mut v = Validation::new(true, 1);
        for round in 0..1000 {
            let start = round * 8192;
            (0..SHORT_READS_MAX as u64).for_each(|n| _ = limited(&mut v, read(start + n, 32 << 10)));
            limited(&mut v, read(start + 1500, 32 << 10));
            let host = v.unproved.entry(udp(1).addr.ip());
            assert_eq!(host.echoes, 0, "round {round}");
        }
    }

    #[test]
    fn blind_sender_is_not_proved() {
        let mut v = Validation::new(true, 1);
        // The sender knows everything but the lengths of the replies.
        for n in 0..200_000u64 {
            let offset = (n % 2 + n % 3) * 1500 + n / 3 % 16;
            assert!(limited(&mut v, read(offset, 32 << 10)) < 2 * DATA_MIN);
        }
        assert!(v.bounds(udp(1)));
    }

    #[test]
    fn wrong_guess_makes_a_short_reply_worthless() {
        let mut v = Validation::new(true, 1);
        let length = u64::from(limited(&mut v, read(0, 32 << 10)));
        for round in 0..10 {
            limited(&mut v, read(length.max(1025) - 1, 32 << 10));
            // A right guess, but too late.
            limited(&mut v, read(length, 32 << 10));
            assert_eq!(v.unproved.entry(udp(1).addr.ip()).echoes, 0, "round {round}");
        }
    }

    #[test]
    fn stream_proves_the_address_of_its_peer() {
        let mut v = Validation::new(true, 1);
        let tcp = Peer::stream("0.0.0.1:9".parse().unwrap(), 1);
        assert!(v.bounds(udp(1)));
        v.heard(Time::ZERO, tcp, 100);
        assert!(!v.bounds(udp(1)) && !v.bounds(tcp) && v.bounds(udp(2)));
        assert!(!Validation::new(false, 1).bounds(udp(2)), "switched off");
    }

    #[test]
    fn directory_pages_are_cut_and_reads_of_version_2_are_not() {
        let mut v = Validation::new(true, 1);
        let list = Call::ReadDir(ReadDirArgs { dir: fh(), cookie: 0, verf: [0; 8], count: 8192 });
        let plus =
            Call::ReadDirPlus(ReadDirPlusArgs { dir: fh(), cookie: 0, verf: [0; 8], dir_count: 512, max_count: 8192 });
        assert_eq!([limited(&mut v, list), limited(&mut v, plus), limited(&mut v, read(0, 1000))], [1024, 1024, 1000]);
        let limited = v.limit(udp(1), &Form::V2(nfs2::Proc::Read), read(0, 8192));
        assert_eq!((count(&limited.call), limited.is_cut), (8192, false));
    }

    #[test]
    fn listing_continued_with_its_verifier_is_validated() {
        let mut v = Validation::new(true, 1);
        let page = |cookie, verf| {
            Call::ReadDirPlus(ReadDirPlusArgs { dir: fh(), cookie, verf, dir_count: 512, max_count: 32 << 10 })
        };
        v.heard(Time::ZERO, udp(1), 150);
        let first = v.limit(udp(1), &Form::V3, page(0, [0; 8]));
        assert!((4000..FACTOR as u32 * 178).contains(&count(&first.call)), "{first:?}");
        for (verf, is_proof) in [([0; 8], false), ([7; 8], false), (first.listing_verf, true)] {
            let next = v.limit(udp(1), &Form::V3, page(5, verf));
            assert_eq!((count(&next.call) == 32 << 10, !v.bounds(udp(1))), (is_proof, is_proof));
        }
        let again = v.limit(udp(1), &Form::V3, page(9, first.listing_verf));
        assert_eq!(again.call, page(9, [0; 8]), "the file system does not know it");
        let other = v.limit(udp(2), &Form::V3, page(5, first.listing_verf));
        assert!(other.is_cut && v.bounds(udp(2)), "it is for one address");
    }

    #[test]
    fn reads_within_the_credit_are_whole() {
        let mut v = Validation::new(true, 1);
        v.heard(Time::ZERO, udp(1), 150);
        assert_eq!(
            [limited(&mut v, read(0, 4096)), limited(&mut v, read(4096, 4096))].map(|n| n == 4096),
            [true, false]
        );
    }

    #[test]
    fn nothing_is_sent_beyond_the_factor() {
        let mut v = Validation::new(true, 1);
        let (mut received, mut sent, mut unsent) = (0, 0, 0);
        for _ in 0..100 {
            v.heard(Time::ZERO, udp(1), 150);
            received += 150 + HEADERS;
            match v.may_send(udp(1), 8300) {
                true => sent += 8300 + HEADERS,
                false => unsent += 1,
            }
            assert!(sent <= FACTOR * received);
        }
        assert!((30..50).contains(&unsent), "each is sent at the second try at the latest: {unsent}");
        let refusal_max = (FACTOR - 1) * HEADERS;
        assert_eq!([refusal_max, refusal_max + 1].map(|bytes| v.may_send(udp(2), bytes)), [true, false], "no entry");
    }

    #[test]
    fn addresses_are_forgotten_but_not_those_in_use() {
        let mut v = Validation::new(true, 1);
        for n in 0..10 * GENERATION as u32 {
            v.heard(Time::ZERO, udp(n + 2), 100);
            v.heard(Time::ZERO, udp(1), 0);
            assert!(v.unproved.young.len() + v.unproved.old.len() <= 2 * GENERATION);
        }
        assert!(v.may_send(udp(1), CREDIT_MAX - HEADERS));
    }

    #[test]
    fn proof_in_use_outlasts_those_of_other_addresses() {
        let mut v = Validation::new(true, 1);
        let tcp = |n: u32| Peer::stream((std::net::Ipv4Addr::from_bits(n), 9).into(), n.into());
        v.heard(Time::ZERO, tcp(1), 100);
        for n in 0..10 * GENERATION as u32 {
            v.heard(Time::ZERO, tcp(n + 2), 100);
            v.heard(Time::ZERO, udp(1), 100);
        }
        assert!(!v.bounds(udp(1)) && v.bounds(udp(2)));
    }

    #[test]
    fn first_entry_of_a_generation_keeps_its_value() {
        let mut recent = Recent::<u32>::default();
        let ip = |n: u32| std::net::Ipv4Addr::from_bits(n).into();
        *recent.entry(ip(0)) = 7;
        for n in 1..2 * GENERATION as u32 {
            recent.entry(ip(n));
        }
        assert_eq!(*recent.entry(ip(0)), 7);
    }
}
