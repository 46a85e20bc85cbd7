//! Loss detection: losses are inferred from later replies, and a silence is probed.

mod common;

use std::time::Duration;

use common::{MS, Sent, World, getattr, read, read_of, refusal, server};
use remora_base::Core;
use remora_client::{BlockSize, ClientConfig, Transport, WindowSize};
use remora_wire::nfs3::Proc;

/// A client with three READs in flight on a measured link where each takes 50 ms.
fn warm() -> (World, Vec<Sent>) {
    let mut w = World::new(ClientConfig {
        window: WindowSize::Fixed(3),
        block: BlockSize::Fixed(4096),
        ..ClientConfig::new(Transport::Udp)
    });
    w.submit_reads(40);
    let mut in_flight = w.sent();
    for _ in 0..20 {
        w.now += MS * 50;
        let oldest = in_flight.remove(0);
        w.answer(&oldest);
        in_flight.extend(w.sent());
    }
    assert_eq!((w.client.stats().retransmissions, w.client.stats().probes), (0, 0), "nothing was overdue");
    (w, in_flight)
}

fn xids(sent: &[Sent], proc: Proc) -> Vec<u32> {
    sent.iter().filter(|s| s.proc == proc).map(|s| s.xid).collect()
}

#[test]
fn passed_request_is_retransmitted_at_once() {
    let (mut w, in_flight) = warm();
    w.now += MS * 100;
    w.answer(&in_flight[1]);
    let sent = w.pass(MS * 2);
    assert_eq!(xids(&sent, Proc::Read)[..1], [in_flight[0].xid], "its reply would have come first");
    assert!(!xids(&sent, Proc::Read).contains(&in_flight[2].xid), "nothing says that this one is lost");
}

#[test]
fn first_probe_reply_after_silence_releases_the_window() {
    let (mut w, in_flight) = warm();
    let quiet = w.pass(MS * 160);
    assert!(xids(&quiet, Proc::Read).is_empty(), "no file data is wasted on a dead link");
    let probes: Vec<&Sent> = quiet.iter().filter(|s| s.proc == Proc::Null).collect();
    assert!(probes.len() >= 4, "{} probes in a burst", probes.len());
    let waited = probes[0].at.since(in_flight[2].at);
    assert!(waited < Duration::from_millis(90), "the next reply was due after 50 ms; probed after {waited:?}");
    w.answer(probes[probes.len() - 1]);
    let sent = w.pass(MS * 5);
    let all: Vec<u32> = in_flight.iter().map(|s| s.xid).collect();
    assert_eq!(xids(&sent, Proc::Read), all, "all that was sent before the probe is lost");
}

/// Before the first block was answered its time is unknown; after a loss it is probed for early.
#[test]
fn first_blocks_are_probed_soon_after_a_loss() {
    for (lossy, within) in [(false, 240..260), (true, 55..80)] {
        let mut w = World::new(ClientConfig { block: BlockSize::Fixed(4096), ..ClientConfig::new(Transport::Udp) });
        w.submit_all([getattr(), getattr()]);
        let asked = w.sent();
        w.now += MS * 6;
        w.answer(&asked[1]);
        if lossy {
            let again = w.pass(MS * 40);
            assert_eq!(xids(&again, Proc::GetAttr)[..1], [asked[0].xid]);
            w.answer(again.iter().find(|s| s.proc == Proc::GetAttr).expect("it was lost"));
        } else {
            w.answer(&asked[0]);
        }
        w.submit_reads(2);
        let (sent, quiet) = (w.now, w.pass(MS * 400));
        let probe = quiet.iter().find(|s| s.proc == Proc::Null).expect("a probe");
        let waited = probe.at.since(sent).as_millis();
        assert!(within.contains(&waited), "something was lost: {lossy}; asked after {waited} ms");
    }
}

#[test]
fn long_outage_is_probed_at_ten_then_five_hertz() {
    let (mut w, _) = warm();
    w.pass(Duration::from_secs(5));
    for (seconds, messages) in [(5, 49..=50), (20, 0..=200), (60, 299..=300)] {
        let steady = w.pass(Duration::from_secs(seconds));
        assert!(messages.contains(&steady.len()), "{} messages in {seconds} s", steady.len());
        assert!(steady.iter().all(|s| s.proc == Proc::Null));
    }
}

#[test]
fn server_slow_at_one_request_is_not_flooded() {
    let (mut w, _) = warm();
    w.submit(getattr());
    let (mut probes, mut again) = (0, 0);
    for _ in 0..3000 {
        for s in w.pass(MS * 20) {
            match s.proc {
                Proc::Null => {
                    probes += 1;
                    w.answer(&s);
                }
                _ => again += 1,
            }
        }
    }
    // 60 s: timeouts that double up to 8 s allow some 14 for each of four requests, a probe or two for each, and one a
    // second while the server lives.
    assert!(again < 64, "{again} retransmissions in a minute to a server that is merely slow");
    assert!(probes < 200, "{probes} probes");
    assert_eq!(w.client.loss().unwrap_or_default(), 0.0, "a request that waits is none that was lost");
}

/// A server whose disk hangs at one place answers everything else in order.
#[test]
fn slow_request_among_fast_ones_is_no_loss() {
    let (mut w, mut in_flight) = warm();
    w.submit_reads(2000);
    let slow = in_flight.remove(0).xid;
    let mut again = 0;
    for _ in 0..1200 {
        if !in_flight.is_empty() {
            w.answer(&in_flight.remove(0));
        }
        for sent in w.pass(MS * 50) {
            match sent.proc {
                Proc::Null => w.answer(&sent),
                _ if sent.xid == slow => again += 1,
                _ => in_flight.push(sent),
            }
        }
    }
    // 60 s: a few retransmissions as for losses, then timeouts doubled up to 8 s.
    assert!(again < 24, "{again} retransmissions in a minute");
    assert_eq!(w.client.loss().unwrap_or_default(), 0.0);
}

#[test]
fn independent_loss_keeps_blocks_short_after_a_pause() {
    let mut w = World::new(ClientConfig { window: WindowSize::Fixed(3), ..ClientConfig::new(Transport::Udp) });
    w.submit_reads(400);
    let mut in_flight = std::collections::VecDeque::from(w.sent());
    for nth in 1..1000 {
        let Some(sent) = in_flight.pop_front() else { break };
        w.now += MS * 12;
        if nth % 6 != 0 {
            w.answer(&sent);
        }
        in_flight.extend(w.pass(MS));
    }
    assert!(w.client.loss().is_some_and(|p| p > 0.03), "{:?}", w.client.loss());
    w.pass(Duration::from_secs(30));
    w.submit(getattr());
    let block = w.client.read_block(1 << 20);
    assert!(remora_client::fragments(block + 128) <= 2, "{block} bytes");
}

/// A server that puts READs off (JUKEBOX) does not make a slow path look fast.
#[test]
fn error_reply_is_no_rtt_sample_of_file_data() {
    let mut w = World::new(ClientConfig::new(Transport::Udp));
    w.submit(getattr());
    let small = w.sent();
    w.now += MS * 5;
    small.iter().for_each(|s| w.answer(s));
    w.submit(read_of(0, 5600));
    let refused = w.sent();
    w.now += MS * 6;
    w.client.handle_input(w.now, server(), refusal(refused[0].xid, Proc::Read));
    // 64 kbit/s: a frame takes 190 ms.
    let (mut waiting, mut free_at, mut offset) = (std::collections::VecDeque::new(), w.now, 0);
    for _ in 0..3000 {
        for _ in 0..w.client.room() {
            let block = w.client.read_block(1 << 20);
            w.submit(read_of(offset, block));
            offset += u64::from(block);
        }
        for sent in w.pass(MS * 10) {
            free_at = free_at.max(sent.at) + MS * (sent.reply_len() as u32 / 8);
            waiting.push_back((free_at, sent));
        }
        while let Some((_, sent)) = waiting.pop_front_if(|(at, _)| *at <= w.now) {
            w.answer(&sent);
        }
    }
    let pace = w.client.frames_per_second();
    assert!(pace.is_some_and(|pace| (4.0..7.0).contains(&pace)), "{pace:?} frames a second");
    let block = w.client.read_block(1 << 20);
    assert!(block <= 2 * 1472, "{block} bytes");
}

#[test]
fn reordering_widens_the_window() {
    let mut w = World::new(ClientConfig { window: WindowSize::Fixed(2), ..ClientConfig::new(Transport::Udp) });
    let mut again = Vec::new();
    for _ in 0..16 {
        w.submit(read(0));
        w.submit(read(1));
        let pair = w.sent();
        // The replies swap places, 10 ms apart.
        w.pass(MS * 50);
        w.answer(&pair[1]);
        let sent_again = w.pass(MS * 10);
        again.push(xids(&sent_again, Proc::Read).len());
        w.answer(&pair[0]);
        // The retransmission is answered, too.
        sent_again.iter().filter(|s| s.proc == Proc::Read).for_each(|s| w.answer(s));
        w.sent();
        let stats = w.client.stats();
        assert!(stats.spurious <= stats.retransmissions, "{stats:?}");
    }
    assert!(again[..2].iter().sum::<usize>() > 0, "at first a swap looks like a loss: {again:?}");
    assert_eq!(again[8..].iter().sum::<usize>(), 0, "{again:?}");
    assert!(w.client.stats().spurious > 0);
}
