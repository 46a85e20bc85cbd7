//! Attacks by arguments: names, ranges, cookies, permissions, disk space and file handles.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;
use remora_base::Rng;
use remora_wire::nfs3::{
    Call, CommitArgs, CreateArgs, CreateHow, DirOp, FH_MAX, Fh, LinkArgs, MkDirArgs, ReadArgs, ReadDirArgs,
    ReadDirPlusArgs, RenameArgs, Reply, SetAttr, SetAttrArgs, Stable, Status, SymLinkArgs, WriteArgs,
};
use remora_wire::rpc::{AuthUnix, OpaqueAuth};

use super::ground::{AttackResult, Ground, create};
use crate::raw::Stream;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Invalid names and names that leave the directory: nothing may appear on the disk.
pub(super) fn bad_names(ground: &Ground) -> AttackResult {
    let long = |n: usize| "x".repeat(n);
    let bad: Vec<String> = ["", ".", "..", "/", "a/b", "../srv", "/etc/passwd", "a\0b", "\0"].map(str::to_owned).into();
    let bad: Vec<String> = bad.into_iter().chain([256, 1000, 4096].map(long)).collect();
    let mut stream = ground.stream()?;
    // The longest valid name.
    create(&mut stream, &ground.root, &long(255))?;
    let before = listing(ground)?;
    let mut tried = 0;
    while !ground.is_over() {
        for name in &bad {
            for call in calls_with(ground, name) {
                let reply = stream.call(&call);
                tried += 1;
                let is_lookup_of_dots = matches!(call, Call::Lookup(_)) && (name == "." || name == "..");
                match reply {
                    Ok(reply) if reply.status().is_none() && !is_lookup_of_dots => {
                        return Err(format!("{name:?} was accepted by {:?}", call.proc()).into());
                    }
                    // RPC refuses arguments that cannot be decoded.
                    Err(e) if e.kind() != std::io::ErrorKind::InvalidData => return Err(e.into()),
                    _ => {}
                }
            }
        }
    }
    if listing(ground)? != before {
        return Err("the directory has changed".into());
    }
    Ok(format!("{tried} calls, nothing created, moved or removed"))
}

fn listing(ground: &Ground) -> std::io::Result<Vec<std::ffi::OsString>> {
    let parent = ground.srv.parent().unwrap_or(ground.srv);
    let mut names = Vec::new();
    for dir in [ground.srv, parent] {
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name());
        }
    }
    names.sort();
    Ok(names)
}

fn calls_with(ground: &Ground, name: &str) -> [Call; 9] {
    let at = DirOp { dir: ground.root.clone(), name: Bytes::copy_from_slice(name.as_bytes()) };
    let file = || DirOp { dir: ground.root.clone(), name: Bytes::from_static(b"file") };
    let target = Bytes::from_static(b"target");
    [
        Call::Lookup(at.clone()),
        Call::Create(CreateArgs { at: at.clone(), how: CreateHow::Unchecked(SetAttr::NONE) }),
        Call::MkDir(MkDirArgs { at: at.clone(), attr: SetAttr::NONE }),
        Call::SymLink(SymLinkArgs { at: at.clone(), attr: SetAttr::NONE, target }),
        Call::Remove(at.clone()),
        Call::RmDir(at.clone()),
        Call::Rename(RenameArgs { from: at.clone(), to: file() }),
        Call::Rename(RenameArgs { from: file(), to: at.clone() }),
        Call::Link(LinkArgs { fh: ground.file.clone(), at }),
    ]
}

/// Extreme offsets and counts, and counts that differ from the length of the data.
pub(super) fn extreme_ranges(ground: &Ground) -> AttackResult {
    /// Most bytes of a READ or WRITE.
    const IO_MAX: u32 = 1 << 20;
    let mut stream = ground.stream()?;
    let write = |offset, count, data: usize| {
        let data = Bytes::from(vec![1; data]);
        Call::Write(WriteArgs { fh: ground.file.clone(), offset, count, stable: Stable::Unstable, data })
    };
    let mut tried = 0;
    while !ground.is_over() {
        for offset in [0, u64::from(u32::MAX), i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
            let read = Call::Read(ReadArgs { fh: ground.file.clone(), offset, count: u32::MAX });
            match stream.call(&read)? {
                Reply::Read(Ok(ok)) if ok.count <= IO_MAX && ok.data.len() == ok.count as usize => {}
                Reply::Read(Err(_)) => {}
                other => return Err(format!("READ at {offset}: {:?}", other.status()).into()),
            }
        }
        for offset in [i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX - 3, u64::MAX] {
            refused(&mut stream, &write(offset, 8, 8), &[Status::FBig, Status::Inval])?;
        }
        // A count above the data's length is invalid. A smaller one writes that much, up to the server's limit.
        refused(&mut stream, &write(0, 100, 8), &[Status::Inval])?;
        refused(&mut stream, &write(0, u32::MAX, 8), &[Status::Inval])?;
        for (count, data, taken) in [(8, 100, 8), (0, 100, 0), (IO_MAX + 4096, IO_MAX as usize + 4096, IO_MAX)] {
            match stream.call(&write(0, count, data))? {
                Reply::Write(Ok(ok)) if ok.count == taken => {}
                other => return Err(format!("WRITE of {count} in {data}: {other:?}").into()),
            }
        }
        let set = SetAttrArgs {
            fh: ground.file.clone(),
            attr: SetAttr { size: Some(u64::MAX), ..SetAttr::NONE },
            guard: None,
        };
        refused(&mut stream, &Call::SetAttr(set), &[Status::FBig, Status::Inval])?;
        // Any reply is valid, but there must be one.
        stream.call(&Call::Commit(CommitArgs { fh: ground.file.clone(), offset: u64::MAX, count: u32::MAX }))?;
        tried += 16;
    }
    Ok(format!("{tried} calls"))
}

/// Listings from cookies that the server never returned.
pub(super) fn bad_cookies(ground: &Ground) -> AttackResult {
    let mut rng = ground.rng("cookies");
    let mut stream = ground.stream()?;
    for n in 0..50 {
        create(&mut stream, &ground.root, &format!("entry{n}"))?;
    }
    let (mut asked, mut failed) = (0, 0);
    while !ground.is_over() {
        let cookie = [0, 1, u64::MAX, i64::MAX as u64, rng.next_u64()][rng.below(5) as usize];
        let mut verf = [0; 8];
        if rng.chance(0.5) {
            rng.fill(&mut verf);
        }
        let count = [0, 1, 64, 4096, u32::MAX][rng.below(5) as usize];
        let dir = ground.root.clone();
        let call = if rng.chance(0.5) {
            Call::ReadDir(ReadDirArgs { dir, cookie, verf, count })
        } else {
            Call::ReadDirPlus(ReadDirPlusArgs { dir, cookie, verf, dir_count: count, max_count: count })
        };
        asked += 1;
        match stream.call(&call)?.status() {
            None => {}
            Some(Status::BadCookie | Status::TooSmall | Status::Inval) => failed += 1,
            Some(other) => return Err(format!("{call:?}: {other:?}").into()),
        }
    }
    Ok(format!("{asked} pages, {failed} refused"))
}

/// All permissions are removed from a file during writes: its owner can still write, as with an open file; others
/// cannot.
pub(super) fn permissions_taken(ground: &Ground) -> AttackResult {
    const OWNER: u32 = 1000;
    const LATE: u32 = 1002;
    let is_root = rustix::process::geteuid().is_root();
    let mut stream = ground.stream()?;
    let mut rounds = 0;
    while !ground.is_over() {
        let name = format!("shared{rounds}");
        let fh = create(&mut stream, &ground.root, &name)?;
        if is_root {
            let attr = SetAttr { uid: Some(OWNER), mode: Some(0o666), ..SetAttr::NONE };
            as_user(&mut stream, 0, &Call::SetAttr(SetAttrArgs { fh: fh.clone(), attr, guard: None }))?;
        }
        let owner = if is_root { OWNER } else { rustix::process::geteuid().as_raw() };
        let write = |stream: &mut Stream, uid, data| as_user(stream, uid, &small_write(&fh, data));
        succeeded(write(&mut stream, owner, b"open")?, "the owner's write")?;
        fs::set_permissions(ground.srv.join(&name), fs::Permissions::from_mode(0o000))?;
        succeeded(write(&mut stream, owner, b"more")?, "the owner's write without permissions")?;
        if is_root && write(&mut stream, LATE, b"late")?.status() != Some(Status::Access) {
            return Err("another user could write without permissions".into());
        }
        let read = Call::Read(ReadArgs { fh: fh.clone(), offset: 0, count: 100 });
        match as_user(&mut stream, owner, &read)? {
            Reply::Read(Ok(ok)) if ok.data == b"more"[..] => {}
            other => return Err(format!("the owner's data without permissions: {other:?}").into()),
        }
        // A call that always fails, so that a counter rises.
        let missing = DirOp { dir: ground.root.clone(), name: Bytes::from_static(b"missing") };
        refused(&mut stream, &Call::Remove(missing), &[Status::NoEnt])?;
        rounds += 1;
    }
    // The server does not check permissions of replies from its cache.
    ground.look()?;
    let replays = ground.seen.lock().ok().and_then(|seen| seen.get("cache_replays").copied());
    if replays != Some(0) {
        return Err(format!("{replays:?} calls were answered from the cache").into());
    }
    Ok(format!("{rounds} files{}", if is_root { "" } else { "; not root, so the owner's part only" }))
}

fn small_write(fh: &Fh, data: &'static [u8; 4]) -> Call {
    let data = Bytes::from_static(data);
    Call::Write(WriteArgs { fh: fh.clone(), offset: 0, count: 4, stable: Stable::FileSync, data })
}

fn as_user(stream: &mut Stream, uid: u32, call: &Call) -> std::io::Result<Reply> {
    stream.call_as(OpaqueAuth::unix(&AuthUnix { uid, gid: uid, ..AuthUnix::default() }), call)
}

fn succeeded(reply: Reply, what: &str) -> Result<(), Failure> {
    match reply.status() {
        None => Ok(()),
        Some(status) => Err(format!("{what}: {status:?}").into()),
    }
}

/// Writes until the disk is full: acknowledged data stays, and writes work again after space is freed.
pub(super) fn disk_full(ground: &Ground) -> AttackResult {
    const PIECE: usize = 64 << 10;
    let mut stream = ground.stream()?;
    let (mut rounds, mut refused) = (0u32, 0);
    while rounds == 0 || !ground.is_over() {
        let name = format!("full{rounds}");
        let fh = create(&mut stream, &ground.root, &name)?;
        let data = |n: u64| Bytes::from(vec![n as u8 + 1; PIECE]);
        let write = |n: u64| WriteArgs {
            fh: fh.clone(),
            offset: n * PIECE as u64,
            count: PIECE as u32,
            stable: if n.is_multiple_of(2) { Stable::FileSync } else { Stable::Unstable },
            data: data(n),
        };
        let mut written = 0;
        loop {
            match stream.call(&Call::Write(write(written)))?.status() {
                None => written += 1,
                Some(Status::NoSpc) => break,
                Some(other) => return Err(format!("on a full disk: {other:?}").into()),
            }
        }
        for _ in 0..20 {
            refused += u32::from(stream.call(&Call::Write(write(written)))?.status() == Some(Status::NoSpc));
        }
        for n in 0..written {
            let read = ReadArgs { fh: fh.clone(), offset: n * PIECE as u64, count: PIECE as u32 };
            match stream.call(&Call::Read(read))? {
                Reply::Read(Ok(ok)) if ok.data == data(n) => {}
                other => return Err(format!("piece {n} is lost: {:?}", other.status()).into()),
            }
        }
        let at = DirOp { dir: ground.root.clone(), name: name.into() };
        succeeded(stream.call(&Call::Remove(at))?, "REMOVE on a full disk")?;
        rounds += 1;
    }
    Ok(format!("{rounds} times full, {refused} further WRITEs refused"))
}

/// Random handles, and valid ones truncated, extended, with each bit flipped, and spliced: every call must fail. Then
/// valid handles of another export where both must be of one.
pub(super) fn forged(ground: &Ground) -> AttackResult {
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
    // Handles of one export share a prefix, so a splice may be valid.
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

/// Makes a call that must fail with one of `statuses`.
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
