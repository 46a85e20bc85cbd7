//! Servers that take long for each request and execute many concurrently, as if they fetched files from elsewhere:
//! latency, not the pace of a slow link.

mod common;

use std::time::Duration;

use common::{MS, Sent, World, commit, getattr, read_of, write};
use remora_base::Time;
use remora_client::{ClientConfig, Transport};
use remora_wire::nfs3::{Fh, Proc};

/// Time of the server: for file data `data` and up to `jitter` more.
#[derive(Clone, Copy, Debug)]
struct Server {
    data: Duration,
    jitter: Duration,
    /// It also answers duplicates; else it has a duplicate request cache.
    answers_doubles: bool,
}

impl Server {
    fn takes(self, sent: &Sent, draw: &mut u64) -> Duration {
        *draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let share = (*draw >> 33) as f64 / f64::from(1u32 << 31);
        match sent.proc {
            Proc::Read | Proc::Write => self.data + self.jitter.mul_f64(share),
            _ => MS,
        }
    }
}

/// Time of a download of 2 MB, at most `most`, with a small request every `beside` milliseconds.
fn takes(server: Server, is_write: bool, beside: u128, most: Duration) -> (Duration, World) {
    let mut w = World::new(ClientConfig::new(Transport::Udp));
    let (mut bytes, mut offset, mut draw) = (0, 0, 1);
    let mut due: Vec<(Time, Sent)> = Vec::new();
    let (fh, start) = (Fh(bytes::Bytes::from_static(b"file")), w.now);
    w.submit(getattr());
    while w.now.since(start) < most && bytes < 2_000_000 {
        for _ in 0..w.client.room() {
            let block = if is_write { w.client.write_block(&fh, 1 << 20) } else { w.client.read_block(1 << 20) };
            w.submit(if is_write { write(offset, block as usize) } else { read_of(offset, block) });
            offset += u64::from(block);
        }
        if w.now.since(start).as_millis() % beside == beside - 1 {
            w.submit(getattr());
        }
        for sent in w.pass(MS) {
            if server.answers_doubles || due.iter().all(|(_, before)| before.xid != sent.xid) {
                due.push((sent.at + server.takes(&sent, &mut draw), sent));
            }
        }
        due.sort_by_key(|(at, _)| *at);
        let n = due.partition_point(|(at, _)| *at <= w.now);
        for (_, sent) in due.drain(..n) {
            let before = w.done.len();
            w.answer(&sent);
            w.sent();
            if w.done.len() > before && matches!(sent.proc, Proc::Read | Proc::Write) {
                bytes += sent.payload.len().max(sent.reply_len()) as u64 - 128;
            }
        }
    }
    (w.now.since(start), w)
}

/// Limits of a transfer.
#[derive(Clone, Copy)]
struct Limits {
    seconds: u64,
    retransmissions: u64,
}

fn must_take(server: Server, is_write: bool, beside: u128, limits: Limits) {
    let most = Duration::from_secs(limits.seconds);
    let (took, w) = takes(server, is_write, beside, most);
    assert!(took < most, "{server:?}, write {is_write}: {:?}", w.client.stats());
    let again = w.client.stats().retransmissions;
    assert!(again < limits.retransmissions, "{server:?}, write {is_write}: {again} spurious retransmissions");
}

#[test]
fn slow_requests_fill_the_window() {
    let ms = Duration::from_millis;
    for (data, jitter, most) in [(50, 0, 2), (50, 10, 3), (300, 0, 25), (300, 2, 10), (300, 60, 15), (3000, 20, 90)] {
        for (is_write, answers_doubles) in [(false, true), (true, true), (true, false)] {
            let server = Server { data: ms(data), jitter: ms(jitter), answers_doubles };
            must_take(server, is_write, u128::MAX, Limits { seconds: most, retransmissions: 60 });
        }
    }
}

/// Blocks are shorter then, but nothing is retransmitted again and again.
#[test]
fn slow_file_data_is_learned_beside_fast_small_calls() {
    let ms = Duration::from_millis;
    for (data, jitter, most) in [(300, 0, 60), (3000, 20, 200)] {
        for (is_write, answers_doubles) in [(false, true), (true, true), (true, false)] {
            // The first few are retransmitted often before one is answered.
            must_take(
                Server { data: ms(data), jitter: ms(jitter), answers_doubles },
                is_write,
                50,
                Limits { seconds: most, retransmissions: 100 },
            );
        }
    }
}

/// COMMITs of a client with two WRITEs in flight, each answered after 2 ms. The server takes a second for each COMMIT,
/// and may answer duplicates or not.
fn commits_beside_writes(answers_doubles: bool) -> (usize, World) {
    let mut w = World::new(ClientConfig::new(Transport::Udp));
    let (fh, mut due, mut commits) = (Fh(bytes::Bytes::from_static(b"file")), Vec::<(Time, Sent)>::new(), 0);
    for ms in 0..36_000 {
        if ms % 3000 == 1000 {
            w.submit(commit());
        }
        for _ in due.iter().filter(|(_, sent)| sent.proc == Proc::Write).count()..2 {
            let block = w.client.write_block(&fh, 1 << 20);
            w.submit(write(0, block as usize));
        }
        for sent in w.pass(MS) {
            let is_commit = sent.proc == Proc::Commit;
            commits += usize::from(is_commit);
            if answers_doubles || due.iter().all(|(_, before)| before.xid != sent.xid) {
                due.push((sent.at + if is_commit { Duration::from_secs(1) } else { MS * 2 }, sent));
            }
        }
        let now = w.now;
        due.extract_if(.., |(at, _)| *at <= now).for_each(|(_, sent)| w.answer(&sent));
        w.done.clear();
    }
    (commits, w)
}

/// A COMMIT that waits for a disk is no loss, and its RTT is known after two.
#[test]
fn slow_commit_is_no_loss_and_shortens_no_block() {
    for answers_doubles in [true, false] {
        let (commits, w) = commits_beside_writes(answers_doubles);
        assert!(commits <= 12 + 10, "12 COMMITs were sent {commits} times: {:?}", w.client.stats());
        let block = w.client.write_block(&Fh(bytes::Bytes::from_static(b"file")), 1 << 20);
        assert!(block > 16_000, "blocks of {block} bytes: {:?}", w.client.stats());
    }
}
