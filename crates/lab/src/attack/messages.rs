//! Attacks by RPC messages: headers, credentials and corrupted bytes.

use std::io;

use bytes::Bytes;
use remora_base::Rng;
use remora_wire::nfs3::{
    Call, CreateArgs, CreateHow, DirOp, Fh, ReadArgs, ReadDirArgs, Reply, SetAttr, Stable, WriteArgs,
};
use remora_wire::rpc::{OpaqueAuth, Outcome};
use remora_wire::{Xdr, mount, nfs3};

use super::ground::{AttackResult, Ground};
use crate::raw::{self, Datagrams};

/// A GETATTR call with a raw credential, whatever its length field says.
fn with_credential(xid: u32, fh: &Fh, flavor: u32, len: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [xid, 0, 2, nfs3::PROGRAM, nfs3::VERSION, nfs3::Proc::GetAttr as u32, flavor, len] {
        word.encode(&mut out);
    }
    out.extend_from_slice(body);
    OpaqueAuth::none().encode(&mut out);
    fh.encode(&mut out);
    out
}

/// AUTH_SYS credentials with too many groups and too long names and bodies.
pub(super) fn gid_bombs(ground: &Ground) -> AttackResult {
    let body = |machine: u32, gids: u32, present: usize| {
        let mut words = vec![0, machine, 1000, 1000, gids];
        words.extend(std::iter::repeat_n(7u32, present));
        words.into_iter().flat_map(u32::to_be_bytes).collect::<Vec<u8>>()
    };
    let bombs = [
        (None, body(0, 0x8000_0000, 0)),
        (None, body(0, u32::MAX, 90)),
        (None, body(0, 101, 95)),
        (None, body(u32::MAX, 0, 0)),
        (None, body(256, 0, 64)),
        (None, vec![0; 3 * 4]),
        (Some(404), body(0, 96, 96)),
        (Some(u32::MAX), body(0, 0, 0)),
    ];
    let mut refused = 0;
    let mut stream = ground.stream()?;
    while !ground.is_over() {
        for (n, (len, body)) in bombs.iter().enumerate() {
            let message =
                with_credential(n as u32 + 1, &ground.root, OpaqueAuth::UNIX, len.unwrap_or(body.len() as u32), body);
            match raw::outcome(&stream.exchange(&message)?)?.0 {
                Outcome::AuthError(_) => refused += 1,
                other => return Err(format!("bomb {n}: {other}").into()),
            }
        }
        // The most groups allowed, and as many as fit: the first sixteen count.
        for groups in [16, 95] {
            let most = body(0, groups, groups as usize);
            let message = with_credential(99, &ground.root, OpaqueAuth::UNIX, most.len() as u32, &most);
            match raw::outcome(&stream.exchange(&message)?)?.0 {
                Outcome::Success => {}
                other => return Err(format!("{groups} groups: {other}").into()),
            }
        }
    }
    Ok(format!("{refused} credentials refused"))
}

/// Valid calls with flipped bits and removed, inserted or doubled bytes, over UDP and TCP at full speed.
pub(super) fn garbage(ground: &Ground) -> AttackResult {
    let mut rng = ground.rng("garbage");
    let calls = honest_calls(ground);
    let datagrams = ground.datagrams(ground.addr)?;
    let mut stream = ground.stream()?;
    let mut sent = 0u64;
    while !ground.is_over() {
        for _ in 0..64 {
            let Some(call) = calls.get(rng.below(calls.len() as u64) as usize) else { continue };
            let broken = mutate(&mut rng, call);
            // Messages too long for a datagram go over the stream only.
            let _ = datagrams.send(&broken);
            stream.send(&broken)?;
            sent += 2;
        }
        // The stream must still work; this also reads the replies.
        let reply = stream.exchange(&raw::nfs(u32::MAX, &Call::GetAttr(ground.root.clone())))?;
        raw::outcome(&reply)?;
    }
    Ok(format!("{sent} messages"))
}

fn honest_calls(ground: &Ground) -> Vec<Bytes> {
    let at = || DirOp { dir: ground.root.clone(), name: Bytes::from_static(b"garbage") };
    let calls = [
        Call::GetAttr(ground.root.clone()),
        Call::Lookup(at()),
        Call::Read(ReadArgs { fh: ground.file.clone(), offset: 0, count: 4096 }),
        Call::Write(WriteArgs {
            fh: ground.file.clone(),
            offset: 0,
            count: 512,
            stable: Stable::Unstable,
            data: vec![1; 512].into(),
        }),
        Call::Create(CreateArgs { at: at(), how: CreateHow::Unchecked(SetAttr::NONE) }),
        Call::ReadDir(ReadDirArgs { dir: ground.root.clone(), cookie: 0, verf: [0; 8], count: 4096 }),
    ];
    let mounts = [mount::Call::Mnt(Bytes::from_static(b"/srv")), mount::Call::Export, mount::Call::Dump];
    let nfs = calls.iter().enumerate().map(|(n, call)| raw::nfs(n as u32, call));
    nfs.chain(mounts.iter().enumerate().map(|(n, call)| raw::mount(n as u32 + 64, call))).collect()
}

/// Corrupts a message. Its header stays mostly valid, so that it gets past the first checks.
fn mutate(rng: &mut Rng, message: &[u8]) -> Vec<u8> {
    let mut out = message.to_vec();
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(out.len() as u64) as usize;
        match rng.below(6) {
            0 => out.truncate(at.max(4)),
            1 => out.extend(std::iter::repeat_n(rng.next_u32() as u8, rng.below(64) as usize)),
            2 => {
                let word = [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX][rng.below(5) as usize];
                let from = at & !3;
                let to = (from + 4).min(out.len());
                out.splice(from..to, u32::to_be_bytes(word));
            }
            3 => {
                let copy = out.get(at..).unwrap_or_default().to_vec();
                out.extend(copy);
            }
            _ => {
                if let Some(byte) = out.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
    }
    out
}

/// Unknown RPC versions, programs, program versions and procedures.
pub(super) fn wrong_versions(ground: &Ground) -> AttackResult {
    let call =
        |prog, vers, proc| raw::message(1, raw::Procedure { prog, vers, proc }, raw::own_credential(), &[]).to_vec();
    let rpc_version = |version: u32| {
        let mut message = call(nfs3::PROGRAM, nfs3::VERSION, 0);
        message.splice(8..12, version.to_be_bytes());
        message
    };
    let is_mismatch: fn(&Outcome) -> bool = |o| matches!(o, Outcome::ProgMismatch { .. });
    let is_version: fn(&Outcome) -> bool = |o| matches!(o, Outcome::RpcMismatch { low: 2, high: 2 });
    let is_unknown: fn(&Outcome) -> bool = |o| *o == Outcome::ProgUnavail;
    let is_no_procedure: fn(&Outcome) -> bool = |o| *o == Outcome::ProcUnavail;
    let cases = [
        (rpc_version(0), is_version),
        (rpc_version(3), is_version),
        (rpc_version(u32::MAX), is_version),
        (call(nfs3::PROGRAM, 1, 0), is_mismatch),
        (call(nfs3::PROGRAM, 4, 1), is_mismatch),
        (call(nfs3::PROGRAM, u32::MAX, 1), is_mismatch),
        (call(mount::PROGRAM, 9, 1), is_mismatch),
        (call(0, 0, 0), is_unknown),
        (call(100_021, 4, 1), is_unknown),
        (call(u32::MAX, u32::MAX, u32::MAX), is_unknown),
        (call(nfs3::PROGRAM, nfs3::VERSION, 22), is_no_procedure),
        (call(nfs3::PROGRAM, nfs3::VERSION, u32::MAX), is_no_procedure),
        (call(mount::PROGRAM, mount::VERSION, 6), is_no_procedure),
    ];
    let mut stream = ground.stream()?;
    let mut refused = 0;
    while !ground.is_over() {
        for (n, (message, expected)) in cases.iter().enumerate() {
            let (outcome, _) = raw::outcome(&stream.exchange(message)?)?;
            if !expected(&outcome) {
                return Err(format!("case {n}: {outcome}").into());
            }
            refused += 1;
        }
    }
    Ok(format!("{refused} calls refused"))
}

/// Repeated datagrams, and other ones with the same xids: a duplicate must not be executed again, a different request
/// must not get the cached reply.
pub(super) fn replays(ground: &Ground) -> AttackResult {
    let datagrams = ground.datagrams(ground.addr)?;
    let write = |xid, byte: u8| {
        let data = Bytes::from(vec![byte; 64]);
        let (fh, stable) = (ground.file.clone(), Stable::FileSync);
        let call = Call::Write(WriteArgs { fh, offset: 0, count: 64, stable, data });
        raw::nfs(xid, &call)
    };
    let (mut rounds, mut xid) = (0u32, 1 << 16);
    while !ground.is_over() {
        let (first, second) = (write(xid, rounds as u8), write(xid, !rounds as u8));
        for message in [&first, &second] {
            answer(&datagrams, message)?;
        }
        // The first one again: a replay, not executed over later changes.
        answer(&datagrams, &first)?;
        let read = Call::Read(ReadArgs { fh: ground.file.clone(), offset: 0, count: 64 });
        let reply = answer(&datagrams, &raw::nfs(xid + 1, &read))?;
        match raw::results(&read, &reply)? {
            Reply::Read(Ok(ok)) if ok.data.iter().all(|b| *b == !rounds as u8) => {}
            other => return Err(format!("round {rounds}: a replayed WRITE was executed again: {other:?}").into()),
        }
        (rounds, xid) = (rounds + 1, xid + 2);
    }
    Ok(format!("{rounds} times two WRITEs with one xid, and the first again"))
}

/// Sends a message, again if needed, and returns the reply.
fn answer(datagrams: &Datagrams, message: &[u8]) -> io::Result<Bytes> {
    let reply = datagrams.exchange(message, 3)?;
    match raw::outcome(&reply)?.0 {
        Outcome::Success => Ok(reply),
        other => Err(io::Error::other(other.to_string())),
    }
}
