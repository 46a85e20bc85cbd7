//! Handles that the server did not make, or not like that.

use bytes::Bytes;
use remora_base::Rng;
use remora_wire::nfs3::{
    Call, CreateArgs, CreateHow, DirOp, FH_MAX, Fh, LinkArgs, ReadArgs, RenameArgs, Reply, SetAttr, Stable, Status,
    WriteArgs,
};

use super::{Ground, Told};
use crate::raw::Stream;

/// Random handles, good ones cut off, lengthened and with each bit turned, and two halves of
/// different ones: no call may take any of them. Then good ones of another export, where both
/// must be of one.
pub(super) fn forged(ground: &Ground) -> Told {
    let mut rng = ground.rng("handles");
    let mut stream = ground.stream()?;
    let mut tried = 0;
    while tried == 0 || !ground.is_over() {
        for fh in forgeries(&mut rng, [&ground.root, &ground.file, &ground.other]) {
            let calls = calls(&fh);
            let Some(call) = calls.get(rng.below(calls.len() as u64) as usize) else { continue };
            refused(&mut stream, call, &[Status::BadHandle, Status::Stale])?;
            tried += 1;
            if tried % 256 == 0 && ground.is_over() {
                break;
            }
        }
        across_exports(ground, &mut stream)?;
    }
    Ok(format!("{tried} forged handles refused"))
}

fn forgeries(rng: &mut Rng, good: [&Fh; 3]) -> Vec<Fh> {
    let mut all = Vec::new();
    for len in 0..=FH_MAX as usize {
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        all.push(Fh(bytes.into()));
    }
    for (fh, other) in good.into_iter().zip(good.into_iter().cycle().skip(1)) {
        for len in 0..fh.0.len() {
            all.push(Fh(fh.0.slice(..len)));
        }
        for bit in 0..fh.0.len() * 8 {
            let mut bytes = fh.0.to_vec();
            if let Some(byte) = bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            all.push(Fh(bytes.into()));
        }
        let longer = [&fh.0[..], &[0]].concat();
        if longer.len() <= FH_MAX as usize {
            all.push(Fh(longer.into()));
        }
        let half = fh.0.len() / 2;
        if other.0.len() > half && other != fh {
            all.push(Fh([&fh.0[..half], &other.0[half..]].concat().into()));
        }
    }
    // Two of one export have the same beginning: their halves may be the one or the other.
    all.retain(|fh| !good.contains(&fh));
    all
}

fn calls(fh: &Fh) -> [Call; 5] {
    let at = DirOp { dir: fh.clone(), name: Bytes::from_static(b"name") };
    let data = Bytes::from_static(b"data");
    [
        Call::GetAttr(fh.clone()),
        Call::Lookup(at.clone()),
        Call::Read(ReadArgs { fh: fh.clone(), offset: 0, count: 16 }),
        Call::Write(WriteArgs { fh: fh.clone(), offset: 0, count: 4, stable: Stable::FileSync, data }),
        Call::Create(CreateArgs { at, how: CreateHow::Unchecked(SetAttr::NONE) }),
    ]
}

fn across_exports(ground: &Ground, stream: &mut Stream) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let at = |dir: &Fh, name: &'static [u8]| DirOp { dir: dir.clone(), name: Bytes::from_static(name) };
    let rename = RenameArgs { from: at(&ground.root, b"file"), to: at(&ground.other, b"file") };
    refused(stream, &Call::Rename(rename), &[Status::XDev])?;
    let link = LinkArgs { fh: ground.file.clone(), at: at(&ground.other, b"file") };
    refused(stream, &Call::Link(link), &[Status::XDev])
}

/// Makes a call that must fail in one of these ways.
pub(super) fn refused(
    stream: &mut Stream,
    call: &Call,
    ways: &[Status],
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let reply: Reply = stream.call(call)?;
    match reply.status() {
        Some(status) if ways.contains(&status) => Ok(()),
        other => Err(format!("{call:?} came to {other:?}").into()),
    }
}
