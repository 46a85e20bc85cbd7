//! The outstanding calls of one connection: a slot for each script, found by the xid of its reply.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::check::{self, check};
use super::outbox::Outbox;
use super::plan::{CallKind, CallPlan, CountedUnit, Head, Image, Step, xorshift};
use super::socket::Fault;

pub(super) const DEPTH_MAX: usize = 1 << SLOT_BITS;
/// Bits of an xid for the slot; the others count.
const SLOT_BITS: u32 = 10;
/// Bits of a name's number for the counter; the others identify the connection and run.
const NAME_BITS: u32 = 36;
/// Retransmission timeout of datagrams, doubled each time.
const RESEND: Duration = Duration::from_millis(200);
/// Transmissions of a call before the server is given up.
const SENDS_MAX: u32 = 6;
/// Entries of a listing beside files: `.` and `..`.
const DOTS: u64 = 2;
/// Longest latency of the histogram: 100 s in nanoseconds.
const LATENCY_MAX: u64 = 100_000_000_000;

/// A connection's share of the load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) nth: u64,
    pub(super) of: u64,
    /// Concurrent scripts, 1 to [`DEPTH_MAX`].
    pub(super) depth: usize,
    /// Number of scripts; `None`: unlimited.
    pub(super) scripts: Option<u64>,
    pub(super) files: u64,
    pub(super) seed: u64,
    /// Seeds the first xid and name. It must be unique: the server would answer repeated xids from its cache.
    pub(super) nonce: u64,
    pub(super) from: Instant,
    pub(super) until: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(super) struct LaneTally {
    /// Calls or scripts, by the plan's unit.
    pub(super) operations: u64,
    pub(super) bytes: u64,
    pub(super) entries: u64,
    pub(super) lost: u64,
    pub(super) late: u64,
    /// Nanoseconds from the first call to the last reply of an operation.
    pub(super) latency: Histogram<u64>,
    pub(super) last: Option<Instant>,
}

impl LaneTally {
    pub(super) fn new() -> LaneTally {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX, 3).expect("three digits from 1 ns up are possible");
        LaneTally { operations: 0, bytes: 0, entries: 0, lost: 0, late: 0, latency, last: None }
    }

    pub(super) fn add(&mut self, other: &LaneTally) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.entries += other.entries;
        self.lost += other.lost;
        self.late += other.late;
        // Both have the same bounds.
        let _ = self.latency.add(&other.latency);
        self.last = self.last.max(other.last);
    }
}

#[derive(Clone, Debug)]
struct Slot {
    /// `None` between scripts.
    xid: Option<u32>,
    script: usize,
    step: usize,
    file: usize,
    number: u64,
    verf: [u8; 8],
    listed: u64,
    began: Instant,
    called: Instant,
    due: Instant,
    sends: u32,
}

pub(super) struct Lane<'p> {
    plan: &'p CallPlan,
    image: &'p Image,
    share: Share,
    slots: Vec<Slot>,
    free: Vec<usize>,
    left: Option<u64>,
    random: u64,
    calls: u32,
    names: u64,
    /// Bytes written so far to the file of all connections.
    written: u64,
    pub(super) tally: LaneTally,
}

impl<'p> Lane<'p> {
    pub(super) fn new(plan: &'p CallPlan, image: &'p Image, share: Share, now: Instant) -> Lane<'p> {
        let mut random = share.seed ^ (share.nth + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..4).for_each(|_| _ = xorshift(&mut random));
        let mut nonce = share.nonce ^ (share.nth + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let nonce = xorshift(&mut nonce);
        let depth = share.depth.clamp(1, DEPTH_MAX);
        let (script, step, file, number, listed, sends) = (0, 0, 0, 0, 0, 0);
        let (began, called, due, verf) = (now, now, now, [0; 8]);
        let slot = Slot { xid: None, script, step, file, number, verf, listed, began, called, due, sends };
        Lane {
            plan,
            image,
            share,
            slots: vec![slot; depth],
            free: (0..depth).rev().collect(),
            left: share.scripts,
            calls: nonce as u32,
            random,
            names: nonce >> 32 << NAME_BITS,
            written: 0,
            tally: LaneTally::new(),
        }
    }

    pub(super) fn start(&mut self, now: Instant, out: &mut Outbox) {
        while self.left != Some(0)
            && let Some(nth) = self.free.pop()
        {
            self.left = self.left.map(|n| n - 1);
            let script = self.plan.draw(xorshift(&mut self.random));
            let file = xorshift(&mut self.random) as usize;
            let number = self.number(script, file);
            if let Some(slot) = self.slots.get_mut(nth) {
                let (verf, listed) = ([0; 8], 0);
                *slot = Slot { script, step: 0, file, number, verf, listed, began: now, ..slot.clone() };
            }
            self.call(nth, now, out);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left == Some(0)
    }

    /// The name, offset or cookie of a new script.
    fn number(&mut self, script: usize, file: usize) -> u64 {
        let Some(step) = self.plan.step(script, 0) else { return 0 };
        let span = head(step, file).map_or(0, |h| h.span.len as u64);
        match step.kind {
            CallKind::Plain | CallKind::Page => 0,
            CallKind::Name => {
                self.names += 1;
                self.names
            }
            CallKind::Read(len) => {
                let blocks = (span / u64::from(len.max(1))).max(1);
                xorshift(&mut self.random) % blocks * u64::from(len)
            }
            CallKind::Write(len, _) => {
                // Connections start at different offsets of the file.
                let blocks = (span / u64::from(len.max(1))).max(1);
                let block = blocks * self.share.nth / self.share.of.max(1) + self.written;
                self.written += 1;
                block % blocks * u64::from(len)
            }
        }
    }

    /// Sends the current call of a slot.
    fn call(&mut self, nth: usize, now: Instant, out: &mut Outbox) {
        self.calls = self.calls.wrapping_add(1);
        let xid = self.calls << SLOT_BITS | nth as u32;
        let Some(slot) = self.slots.get_mut(nth) else { return };
        *slot = Slot { xid: Some(xid), called: now, due: now + RESEND, sends: 1, ..slot.clone() };
        send(self.plan, self.image, slot, xid, out);
    }

    /// Handles a message. Returns whether it answered an outstanding call.
    pub(super) fn take(&mut self, now: Instant, message: &[u8], out: &mut Outbox) -> Result<bool, Fault> {
        let xid = check::xid(message).ok_or(Fault::Foreign("less than an xid"))?;
        let nth = xid as usize & (DEPTH_MAX - 1);
        let Some(slot) = self.slots.get_mut(nth).filter(|s| s.xid == Some(xid)) else {
            self.tally.late += 1;
            return Ok(false);
        };
        let Some(step) = self.plan.step(slot.script, slot.step) else { return Ok(false) };
        let Some(head) = head(step, slot.file) else { return Ok(false) };
        let brought = check(message, step, head, slot.number, slot.sends > 1, &mut self.random, self.image)?;
        slot.xid = None;
        let (began, called) = (slot.began, slot.called);
        let more = match brought.next {
            Some((cookie, verf)) if step.kind == CallKind::Page => {
                (slot.number, slot.verf) = (cookie, verf);
                slot.listed += brought.entries + brought.dots;
                // Cookies may form a loop.
                if slot.listed > self.share.files + DOTS {
                    return Err(Fault::Foreign("a listing with more entries than there are files"));
                }
                true
            }
            _ => {
                slot.step += 1;
                self.plan.step(slot.script, slot.step).is_some()
            }
        };
        if now >= self.share.from && self.share.until.is_none_or(|t| now < t) {
            self.tally.bytes += brought.bytes;
            self.tally.entries += brought.entries;
            match self.plan.unit {
                CountedUnit::Call => self.count(now, called),
                CountedUnit::Script if !more => self.count(now, began),
                CountedUnit::Script => {}
            }
        }
        if more {
            self.call(nth, now, out);
        } else {
            self.free.push(nth);
        }
        Ok(true)
    }

    fn count(&mut self, now: Instant, since: Instant) {
        self.tally.operations += 1;
        let nanos = u64::try_from((now - since).as_nanos()).unwrap_or(u64::MAX);
        self.tally.latency.saturating_record(nanos.max(1));
        self.tally.last = Some(now);
    }

    /// Retransmits overdue calls (datagrams only). `None`: a call reached the limit.
    pub(super) fn resend(&mut self, now: Instant, out: &mut Outbox) -> Option<()> {
        for slot in self.slots.iter_mut().filter(|s| s.due <= now) {
            let Some(xid) = slot.xid else { continue };
            if slot.sends >= SENDS_MAX {
                return None;
            }
            slot.due = now + RESEND * (1 << slot.sends);
            slot.sends += 1;
            self.tally.lost += 1;
            send(self.plan, self.image, slot, xid, out);
        }
        Some(())
    }
}

fn head(step: &Step, file: usize) -> Option<&Head> {
    step.heads.get(file % step.heads.len().max(1))
}

fn send(plan: &CallPlan, image: &Image, slot: &Slot, xid: u32, out: &mut Outbox) {
    let Some(step) = plan.step(slot.script, slot.step) else { return };
    let Some(head) = head(step, slot.file) else { return };
    let number = slot.number;
    let body = match step.kind {
        CallKind::Write(len, _) => {
            let from = head.span.base + usize::try_from(number).unwrap_or(0);
            from..from + image.bytes(head.span, number, len as usize).len()
        }
        _ => 0..0,
    };
    out.push(&head.bytes, body, |copy| {
        Head::set_xid(copy, xid);
        match step.kind {
            CallKind::Plain => {}
            CallKind::Name => head.set_name(copy, number),
            CallKind::Read(_) | CallKind::Write(..) => head.set_number(copy, number),
            CallKind::Page => {
                head.set_number(copy, number);
                head.set_verifier(copy, &slot.verf);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use remora_wire::nfs3::{Call, Fh, MadeOk, Proc, Reply, Status, Wcc};
    use remora_wire::rpc::{CallHeader, OpaqueAuth, Outcome, ReplyHeader};
    use remora_wire::{Reader, Xdr};

    use super::*;
    use crate::bench::operations;
    use crate::bench::plan::Encoder;

    fn plan() -> CallPlan {
        let encoder = Encoder { cred: OpaqueAuth::none() };
        operations::creation(&Fh(Bytes::from_static(b"dir")), &encoder).unwrap()
    }

    fn lane<'p>(plan: &'p CallPlan, image: &'p Image, nonce: u64, now: Instant) -> Lane<'p> {
        let share =
            Share { nth: 0, of: 1, depth: 4, scripts: Some(6), files: 0, seed: 1, nonce, from: now, until: None };
        Lane::new(plan, image, share, now)
    }

    fn sent(out: &mut Outbox, image: &Image) -> Vec<(u32, Bytes)> {
        let messages: Vec<Vec<u8>> =
            out.datagrams(image, 100).iter().map(|m| m.iter().flat_map(|s| s.to_vec()).collect()).collect();
        out.sent_datagrams(messages.len());
        let read = |message: Vec<u8>| {
            let mut r = Reader::new(message.into());
            let header = CallHeader::decode(&mut r).unwrap();
            match Call::decode(Proc::from_number(header.proc).unwrap(), &mut r).unwrap() {
                Call::Create(args) => (header.xid, args.at.name),
                other => panic!("{other:?}"),
            }
        };
        messages.into_iter().map(read).collect()
    }

    fn reply(xid: u32, status: Option<Status>) -> Vec<u8> {
        let made = MadeOk { fh: None, attr: None, dir: Wcc::NONE };
        let reply = status.map_or(Reply::Create(Ok(made)), |s| Reply::failed(Proc::Create, s));
        let mut bytes = Vec::new();
        ReplyHeader { xid, outcome: Outcome::Success }.encode(&mut bytes);
        reply.encode(&mut bytes);
        bytes
    }

    #[test]
    fn lane_fills_its_depth_with_distinct_calls() {
        let (plan, image, now) = (plan(), Image::new(8), Instant::now());
        let (mut out, mut lane) = (Outbox::default(), lane(&plan, &image, 7, now));
        lane.start(now, &mut out);
        let mut all = sent(&mut out, &image);
        assert_eq!(all.len(), 4);
        for n in 0..6 {
            let (xid, _) = all[n];
            assert!(lane.take(now + Duration::from_millis(1), &reply(xid, None), &mut out).unwrap());
            assert!(!lane.take(now, &reply(xid, None), &mut out).unwrap(), "it was answered");
            lane.start(now, &mut out);
            all.extend(sent(&mut out, &image));
        }
        assert!(lane.is_idle() && lane.is_spent());
        assert_eq!((lane.tally.operations, lane.tally.late), (6, 6));
        assert!(lane.tally.latency.min() >= 999_000, "{}", lane.tally.latency.min());
        for part in [|c: &(u32, Bytes)| c.0.to_bytes(), |c: &(u32, Bytes)| c.1.clone()] {
            let mut parts: Vec<Bytes> = all.iter().map(part).collect();
            parts.sort();
            parts.dedup();
            assert_eq!(parts.len(), 6);
        }
    }

    #[test]
    fn lane_of_another_run_makes_other_calls() {
        let (plan, image, now) = (plan(), Image::new(8), Instant::now());
        let calls = |nonce| {
            let (mut out, mut lane) = (Outbox::default(), lane(&plan, &image, nonce, now));
            lane.start(now, &mut out);
            sent(&mut out, &image)
        };
        let (one, two) = (calls(1 << 40 | 1), calls(2 << 40 | 2));
        assert!(one.iter().zip(&two).all(|(a, b)| a.0 != b.0 && a.1 != b.1));
    }

    #[test]
    fn lost_datagram_is_retransmitted_then_given_up() {
        let (plan, image, start) = (plan(), Image::new(8), Instant::now());
        let (mut out, mut lane) = (Outbox::default(), lane(&plan, &image, 7, start));
        lane.start(start, &mut out);
        let first = sent(&mut out, &image);
        let mut now = start;
        for n in 1..SENDS_MAX {
            assert_eq!(lane.resend(now + RESEND / 2, &mut out), Some(()));
            assert!(out.is_empty(), "too early");
            now += RESEND * (1 << n);
            assert_eq!(lane.resend(now, &mut out), Some(()));
            assert_eq!(sent(&mut out, &image), first, "the same call with the same xid");
        }
        assert_eq!(lane.tally.lost, u64::from(SENDS_MAX - 1) * 4);
        // The original was executed, which is fine. A refusal is a fault.
        assert!(lane.take(now, &reply(first[0].0, Some(Status::Exist)), &mut out).unwrap());
        assert!(lane.take(now, &reply(first[1].0, Some(Status::NoSpc)), &mut out).is_err());
        assert_eq!(lane.resend(now + RESEND * (1 << SENDS_MAX), &mut out), None);
    }
}
