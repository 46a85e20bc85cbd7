//! Attacks by TCP connections and record marking.

use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::time::Duration;

use bytes::Bytes;
use remora_wire::nfs3::{Call, ReadArgs, Reply, Stable, WriteArgs};
use remora_wire::record::mark;

use super::ground::{AttackResult, Ground, PATIENCE};
use super::reference_client;
use crate::raw::{self, Stream};

/// The largest request that the server accepts, in bytes.
const RECORD_MAX: usize = (1 << 20) + (64 << 10);
/// Time limit of a write to a server that does not read.
const HELD_UP: Duration = Duration::from_millis(50);

/// Many connections that send a request at a byte per second and never finish it.
pub(super) fn slow_loris(ground: &Ground) -> AttackResult {
    const CONNECTIONS: usize = 500;
    let mut slow = (0..CONNECTIONS).map(|_| ground.stream()).collect::<io::Result<Vec<Stream>>>()?;
    let message = raw::nfs(1, &Call::GetAttr(ground.root.clone()));
    let record = [&mark(message.len())[..], &message].concat();
    let mut rounds = 0;
    for byte in record.iter().take(record.len() - 1) {
        for stream in &mut slow {
            // The server may close the connection.
            let _ = stream.send_raw(std::slice::from_ref(byte));
        }
        ground.look()?;
        rounds += 1;
        let left = ground.until.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(left.min(Duration::from_secs(1)));
    }
    Ok(format!("{CONNECTIONS} connections, {rounds} bytes each"))
}

pub(super) fn connection_flood(ground: &Ground) -> AttackResult {
    const KEPT_MAX: usize = 2000;
    let (mut kept, mut made) = (Vec::new(), 0);
    while !ground.is_over() {
        kept.push(ground.stream()?);
        made += 1;
        if kept.len() > KEPT_MAX {
            kept.drain(..KEPT_MAX / 2);
        }
    }
    ground.look()?;
    Ok(format!("{made} connections"))
}

/// The most connections allowed, each with repeated NULL calls, and more when some are closed. A new client from
/// another address must still be served.
pub(super) fn pinging_flood(ground: &Ground) -> AttackResult {
    const CONNECTIONS: usize = 1000;
    let null = raw::nfs_null(1);
    let record = [&mark(null.len())[..], &null].concat();
    let (mut held, mut made, mut served) = (Vec::new(), 0, 0);
    while !ground.is_over() {
        while held.len() < CONNECTIONS {
            held.push(ground.stream()?);
            made += 1;
        }
        held.retain_mut(|s: &mut Stream| s.send_raw(&record).is_ok() && s.receive().is_ok_and(|reply| reply.is_some()));
        Stream::connect_from(reference_client::ADDRESS, ground.addr, PATIENCE)?.mount("/srv")?;
        served += 1;
    }
    ground.look()?;
    Ok(format!("{made} connections, {} of them held, {served} newcomers served", held.len()))
}

/// Connections reset in the middle of requests and replies.
pub(super) fn reset_storm(ground: &Ground) -> AttackResult {
    let message = raw::nfs(1, &Call::GetAttr(ground.root.clone()));
    let whole = [&mark(message.len())[..], &message].concat();
    let mut resets = 0;
    while !ground.is_over() {
        let mut stream = ground.stream()?;
        stream.send_raw(whole.get(..1 + resets % whole.len()).unwrap_or(&whole))?;
        rustix::net::sockopt::set_socket_linger(stream.socket(), Some(Duration::ZERO))?;
        resets += 1;
    }
    Ok(format!("{resets} resets"))
}

/// Record marks longer than any request.
pub(super) fn oversized_marks(ground: &Ground) -> AttackResult {
    let marks = [0x7fff_ffff, 0xffff_ffff, 0x8000_0000 | (RECORD_MAX as u32 + 1), 0x00ff_ffff];
    let mut closed = 0;
    while !ground.is_over() {
        for word in marks {
            let mut stream = ground.stream()?;
            stream.send_raw(&u32::to_be_bytes(word))?;
            expect_end(&mut stream)?;
            closed += 1;
        }
        // Fragments that exceed it together.
        let mut stream = ground.stream()?;
        let fragment = [&(RECORD_MAX as u32 / 2).to_be_bytes()[..], &vec![0; RECORD_MAX / 2]].concat();
        let sent = (0..3).try_for_each(|_| stream.send_raw(&fragment));
        if sent.is_ok() {
            expect_end(&mut stream)?;
        }
        closed += 1;
    }
    Ok(format!("{closed} connections, all closed"))
}

/// Endless empty fragments, which must close the connection, and empty records, which must not.
pub(super) fn empty_records(ground: &Ground) -> AttackResult {
    const AT_ONCE: usize = 4096;
    let (mut records, mut closed) = (0, 0);
    while !ground.is_over() {
        let mut stream = ground.stream()?;
        stream.send_raw(&mark(0).repeat(AT_ONCE))?;
        match stream.call(&Call::GetAttr(ground.root.clone()))? {
            Reply::GetAttr(Ok(_)) => records += AT_ONCE,
            other => return Err(format!("after empty records: {:?}", other.status()).into()),
        }
        // The server may close the connection before all are sent.
        if stream.send_raw(&[0; 4].repeat(AT_ONCE)).is_ok() {
            expect_end(&mut stream)?;
        }
        closed += 1;
    }
    Ok(format!("{records} empty records, {closed} connections with empty fragments, all closed"))
}

/// Requests of the largest size, half sent and then abandoned.
pub(super) fn half_requests(ground: &Ground) -> AttackResult {
    const CONNECTIONS: usize = 200;
    let half = [&mark(RECORD_MAX)[..], &vec![0; RECORD_MAX / 2]].concat();
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = ground.stream()?;
        stream.socket().set_write_timeout(Some(HELD_UP))?;
        // The server stops reading when its buffer is full: that is the point.
        let _ = stream.send_raw(&half);
        streams.push(stream);
        if ground.is_over() {
            break;
        }
    }
    ground.look()?;
    std::thread::sleep(ground.until.saturating_duration_since(std::time::Instant::now()));
    Ok(format!("{} connections with half a MiB of a request", streams.len()))
}

/// Clients that request much and read nothing.
pub(super) fn never_reads(ground: &Ground) -> AttackResult {
    const CONNECTIONS: usize = 40;
    const SIZE: u32 = 1 << 20;
    let mut writer = ground.stream()?;
    let data = Bytes::from(vec![7; SIZE as usize]);
    let write = WriteArgs { fh: ground.file.clone(), offset: 0, count: SIZE, stable: Stable::Unstable, data };
    writer.call(&Call::Write(write))?;
    let message = raw::nfs(1, &Call::Read(ReadArgs { fh: ground.file.clone(), offset: 0, count: SIZE }));
    let record = [&mark(message.len())[..], &message].concat();
    let streams = (0..CONNECTIONS).map(|_| ground.stream()).collect::<io::Result<Vec<Stream>>>()?;
    for stream in &streams {
        stream.socket().set_nonblocking(true)?;
    }
    let (mut asked, mut turns) = (0u64, 0u32);
    while !ground.is_over() {
        for stream in &streams {
            // As many as the socket accepts; a truncated record is as harmful as the others.
            asked += (0..100).take_while(|_| stream.socket().write_all(&record).is_ok()).count() as u64;
        }
        turns += 1;
        if turns % 64 == 1 {
            ground.look()?;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    ground.look()?;
    Ok(format!("{CONNECTIONS} connections requested {asked} MiB and read none"))
}

/// Ten thousand pipelined requests on one connection. Each must be answered once.
pub(super) fn pipelined(ground: &Ground) -> AttackResult {
    const REQUESTS: u32 = 10_000;
    let mut rounds = 0;
    while rounds == 0 || !ground.is_over() {
        let mut stream = ground.stream()?;
        let calls = (1..=REQUESTS).flat_map(|xid| {
            let message = raw::nfs(xid, &Call::GetAttr(ground.root.clone()));
            [&mark(message.len())[..], &message].concat()
        });
        let all: Vec<u8> = calls.collect();
        let mut writer = stream.socket().try_clone()?;
        let mut answered = vec![false; REQUESTS as usize + 1];
        std::thread::scope(|scope| -> AttackResult {
            let sent = scope.spawn(move || writer.write_all(&all).and_then(|()| writer.shutdown(Shutdown::Write)));
            while let Some(reply) = stream.receive()? {
                let known = answered.get_mut(raw::xid(&reply) as usize).ok_or("a reply without a request")?;
                if std::mem::replace(known, true) {
                    return Err("a request was answered twice".into());
                }
            }
            sent.join().map_err(|_| "the sender panicked")??;
            Ok(String::new())
        })?;
        if answered.iter().skip(1).any(|a| !a) {
            return Err("a request was not answered".into());
        }
        rounds += 1;
    }
    Ok(format!("{rounds} times {REQUESTS} requests, each answered once"))
}

/// Waits for the server to close the connection.
fn expect_end(stream: &mut Stream) -> io::Result<()> {
    match stream.receive() {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(io::Error::other("a reply to bytes that are not a request")),
        Err(e) if e.kind() == ErrorKind::WouldBlock => {
            Err(io::Error::other(format!("the connection was left open for {PATIENCE:?}")))
        }
        Err(e) => Err(e),
    }
}
