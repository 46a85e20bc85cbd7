//! Scripts of encoded calls, and the incompressible image that all files are parts of.

use bytes::Bytes;
use remora_wire::nfs3::{Call, Proc, Stable};
use remora_wire::record::mark;
use remora_wire::rpc::{CallHeader, OpaqueAuth};
use remora_wire::{Xdr, nfs3};

/// Pattern-free bytes. A file contains a part of them: see [`Span`].
#[derive(Debug)]
pub(super) struct Image(Vec<u8>);

/// A part of the image: a file's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    /// Offset of the file's first byte in the image.
    pub(super) base: usize,
    /// The file's length in bytes.
    pub(super) len: usize,
}

impl Image {
    /// `len` bytes, rounded up to eight.
    pub(super) fn new(len: usize) -> Image {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        let words = (0..len.div_ceil(8)).flat_map(|_| xorshift(&mut state).to_le_bytes());
        Image(words.collect())
    }

    /// The bytes of a file at `offset`; shorter than `len` at its end.
    pub(super) fn bytes(&self, span: Span, offset: u64, len: usize) -> &[u8] {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(span.len);
        let from = span.base.saturating_add(offset);
        let to = from.saturating_add(len.min(span.len - offset));
        self.0.get(from..to.min(self.0.len())).unwrap_or_default()
    }

    pub(super) fn range(&self, range: &std::ops::Range<usize>) -> &[u8] {
        self.0.get(range.clone()).unwrap_or_default()
    }
}

/// xorshift64: fast, and good enough for offsets and file contents.
pub(super) fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Length of generated names: a number in hexadecimal.
pub(super) const NAME_LEN: usize = 16;

/// The sequence of calls that a slot repeats.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) weight: u32,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) proc: Proc,
    /// The call for each possible file; never empty.
    pub(super) heads: Vec<Head>,
    /// Variable part of the call, and the check of its reply.
    pub(super) kind: CallKind,
}

/// An encoded call with record mark, without file data.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) bytes: Vec<u8>,
    /// Offset of the variable part, after the file handle.
    pub(super) at: usize,
    pub(super) span: Span,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallKind {
    Plain,
    /// The name, of [`NAME_LEN`] bytes.
    Name,
    /// A random offset, aligned to the length in bytes.
    Read(u32),
    /// Sequential offsets and data: length in bytes, stability.
    Write(u32, Stable),
    /// Cookie and verifier, until the end of the listing.
    Page,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CountedUnit {
    Call,
    Script,
}

#[derive(Debug)]
pub(super) struct CallPlan {
    scripts: Vec<Script>,
    weights: u64,
    pub(super) unit: CountedUnit,
}

impl CallPlan {
    /// A plan that draws scripts by weight; `None` without scripts.
    pub(super) fn new(scripts: Vec<Script>, unit: CountedUnit) -> Option<CallPlan> {
        let weights = scripts.iter().map(|s| u64::from(s.weight)).sum();
        let sound = |s: &Script| !s.steps.is_empty() && s.steps.iter().all(|s| !s.heads.is_empty());
        (weights > 0 && scripts.iter().all(sound)).then_some(CallPlan { scripts, weights, unit })
    }

    pub(super) fn draw(&self, random: u64) -> usize {
        let mut rest = random % self.weights;
        let hit = |s: &Script| {
            let here = rest < u64::from(s.weight);
            rest = rest.saturating_sub(u64::from(s.weight));
            here
        };
        self.scripts.iter().position(hit).unwrap_or_default()
    }

    /// A step of a script; `None` after the last.
    pub(super) fn step(&self, script: usize, step: usize) -> Option<&Step> {
        self.scripts.get(script)?.steps.get(step)
    }
}

impl Script {
    pub(super) fn single(weight: u32, step: Step) -> Script {
        Script { weight, steps: vec![step] }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Encoder {
    pub(super) cred: OpaqueAuth,
}

impl Encoder {
    /// A step that sends each of `calls` to the file with the given content. File data is taken from the image at send
    /// time.
    pub(super) fn step(&self, kind: CallKind, calls: Vec<(Call, Span)>) -> Step {
        let proc = calls.first().map_or(Proc::Null, |(call, _)| call.proc());
        let heads = calls.iter().map(|(call, span)| self.head(kind, call, *span)).collect();
        Step { proc, heads, kind }
    }

    fn head(&self, kind: CallKind, call: &Call, span: Span) -> Head {
        let header = CallHeader {
            xid: 0,
            prog: nfs3::PROGRAM,
            vers: nfs3::VERSION,
            proc: call.proc() as u32,
            cred: self.cred.clone(),
            verf: OpaqueAuth::none(),
        };
        let mut bytes = vec![0; 4];
        header.encode(&mut bytes);
        let handle = call.target().map_or(0, |fh| fh.to_bytes().len());
        let at = bytes.len() + handle;
        call.encode(&mut bytes);
        let mark = mark(bytes.len() - 4);
        bytes[..4].copy_from_slice(&mark);
        if let CallKind::Write(len, _) = kind {
            bytes.truncate(bytes.len().saturating_sub(len as usize));
        }
        Head { bytes, at, span }
    }
}

impl Head {
    /// Sets the xid in a copy of the head.
    pub(super) fn set_xid(copy: &mut [u8], xid: u32) {
        put(copy, 4, &xid.to_be_bytes());
    }

    pub(super) fn set_number(&self, copy: &mut [u8], number: u64) {
        put(copy, self.at, &number.to_be_bytes());
    }

    pub(super) fn set_verifier(&self, copy: &mut [u8], verf: &[u8; 8]) {
        put(copy, self.at + 8, verf);
    }

    pub(super) fn set_name(&self, copy: &mut [u8], number: u64) {
        put(copy, self.at + 4, &name(number));
    }
}

fn put(copy: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(there) = copy.get_mut(at..at + bytes.len()) {
        there.copy_from_slice(bytes);
    }
}

pub(super) fn name(number: u64) -> [u8; NAME_LEN] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|i| DIGITS[(number >> (60 - 4 * i)) as usize & 15])
}

/// Placeholder data to encode a WRITE.
pub(super) fn filling(image: &Image, len: u32) -> Bytes {
    Bytes::copy_from_slice(image.range(&(0..len as usize)))
}

#[cfg(test)]
mod tests {
    use remora_wire::Reader;
    use remora_wire::nfs3::{CreateArgs, CreateHow, DirOp, Fh, ReadDirPlusArgs, SetAttr, WriteArgs};

    use super::*;

    #[test]
    fn file_content_is_a_part_of_the_image() {
        let image = Image::new(64);
        let span = Span { base: 16, len: 24 };
        assert_eq!(image.bytes(span, 0, 8), image.range(&(16..24)));
        assert_eq!(image.bytes(span, 20, 8), image.range(&(36..40)), "no further than the file's end");
        assert!(image.bytes(span, 24, 8).is_empty() && image.bytes(span, u64::MAX, 8).is_empty());
        assert_ne!(image.range(&(0..8)), image.range(&(8..16)));
    }

    fn encoder() -> Encoder {
        Encoder { cred: OpaqueAuth::unix(&Default::default()) }
    }

    fn decode(bytes: Vec<u8>) -> (CallHeader, Call) {
        assert_eq!(bytes[..4], mark(bytes.len() - 4));
        let mut r = Reader::new(Bytes::from(bytes).slice(4..));
        let header = CallHeader::decode(&mut r).unwrap();
        let call = Call::decode(Proc::from_number(header.proc).unwrap(), &mut r).unwrap();
        assert_eq!(r.remaining(), 0);
        (header, call)
    }

    const SPAN: Span = Span { base: 0, len: 64 };

    #[test]
    fn patched_call_decodes_to_its_values() {
        let fh = |n: usize| Fh(Bytes::from(vec![7; n]));
        for handle in [1, 4, 28, 63, 64] {
            let at = DirOp { dir: fh(handle), name: Bytes::from_static(&[b'-'; NAME_LEN]) };
            let call = Call::Create(CreateArgs { at, how: CreateHow::Unchecked(SetAttr::NONE) });
            let step = encoder().step(CallKind::Name, vec![(call, SPAN)]);
            let mut copy = step.heads[0].bytes.clone();
            Head::set_xid(&mut copy, 77);
            step.heads[0].set_name(&mut copy, 0xabc);
            let (header, call) = decode(copy);
            assert_eq!((header.xid, step.proc), (77, Proc::Create));
            let Call::Create(args) = call else { panic!("{call:?}") };
            assert_eq!((args.at.name, args.at.dir), (Bytes::from_static(b"0000000000000abc"), fh(handle)));

            let list = ReadDirPlusArgs { dir: fh(handle), cookie: 0, verf: [0; 8], dir_count: 1, max_count: 2 };
            let step = encoder().step(CallKind::Page, vec![(Call::ReadDirPlus(list.clone()), SPAN)]);
            let mut copy = step.heads[0].bytes.clone();
            step.heads[0].set_number(&mut copy, 9);
            step.heads[0].set_verifier(&mut copy, &[5; 8]);
            assert_eq!(decode(copy).1, Call::ReadDirPlus(ReadDirPlusArgs { cookie: 9, verf: [5; 8], ..list }));
        }
    }

    #[test]
    fn write_decodes_with_its_data_appended() {
        let image = Image::new(64);
        let (fh, stable) = (Fh(Bytes::from_static(b"handle")), Stable::FileSync);
        let write = |offset, data| WriteArgs { fh: fh.clone(), offset, count: 16, stable, data };
        let call = Call::Write(write(0, filling(&image, 16)));
        let step = encoder().step(CallKind::Write(16, stable), vec![(call, SPAN)]);
        let mut copy = step.heads[0].bytes.clone();
        step.heads[0].set_number(&mut copy, 32);
        copy.extend_from_slice(image.bytes(SPAN, 32, 16));
        let data = Bytes::copy_from_slice(image.range(&(32..48)));
        assert_eq!(decode(copy).1, Call::Write(write(32, data)));
    }

    #[test]
    fn scripts_are_drawn_by_weight() {
        let script = |weight| Script::single(weight, encoder().step(CallKind::Plain, vec![(Call::Null, SPAN)]));
        let plan = CallPlan::new(vec![script(1), script(0), script(3)], CountedUnit::Call).unwrap();
        let drawn: Vec<usize> = (0..8).map(|n| plan.draw(n)).collect();
        assert_eq!(drawn, [0, 2, 2, 2, 0, 2, 2, 2]);
        assert!(CallPlan::new(vec![script(0)], CountedUnit::Call).is_none());
        assert!(CallPlan::new(vec![Script { weight: 1, steps: vec![] }], CountedUnit::Call).is_none());
    }
}
