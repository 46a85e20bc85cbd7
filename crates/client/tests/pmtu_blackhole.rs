//! Path MTU black holes, and paths that look like them.

mod common;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use common::{MS, Sent, World, getattr, read, read_of, symlink, write};
use remora_base::Time;
use remora_client::{BlockSize, CallFailure, Client, ClientConfig, Transport};
use remora_wire::nfs3::{Fh, Proc};

const TRIP: Duration = Duration::from_millis(20);

/// Lets `time` pass with a server that answers after [`TRIP`] what `arrives`.
fn serve(w: &mut World, time: Duration, mut arrives: impl FnMut(Time, &Sent) -> bool) {
    let (end, mut answers) = (w.now + time, VecDeque::new());
    while w.now < end {
        let sent = w.pass(MS);
        answers.extend(sent.into_iter().filter(|s| arrives(s.at, s)));
        while answers.front().is_some_and(|s: &Sent| s.at + TRIP <= w.now) {
            let call = answers.pop_front().unwrap();
            w.answer(&call);
        }
    }
    w.sent();
}

fn is_long(sent: &Sent) -> bool {
    sent.proc == Proc::Read || sent.payload.len() > 1472
}

fn longest(client: &Client) -> u32 {
    client.read_block(u32::MAX)
}

#[test]
fn black_hole_fails_long_requests_and_shortens_blocks() {
    for (requests, most) in [(vec![write(0, 5000), write(5000, 5000)], 10), (vec![read(0), read(4096), read(8192)], 10)]
    {
        let n = requests.len();
        let mut w = World::new(ClientConfig::new(Transport::Udp));
        w.submit(getattr());
        serve(&mut w, TRIP * 2, |_, _| true);
        w.submit_all(requests);
        serve(&mut w, Duration::from_secs(most), |_, sent| !is_long(sent));
        assert_eq!(w.done.len(), 1 + n, "{:?}", w.client.stats());
        assert!(w.done[1..].iter().all(|(_, result)| *result == Err(CallFailure::Fragments)), "{:?}", w.done);
        assert!(w.client.drops_fragments() && w.client.is_idle() && longest(&w.client) < 1400);
        // The window is free again.
        w.submit(write(0, 1000));
        serve(&mut w, TRIP * 2, |_, sent| !is_long(sent));
        assert_eq!(w.done.len(), 2 + n);
    }
}

#[test]
fn outage_or_loss_is_no_black_hole() {
    let outage = |start: Time| move |at: Time, _: &Sent| at.since(start) > Duration::from_secs(20);
    // Four in five long messages are lost.
    let lossy = |_: Time| {
        let mut n = 0;
        move |_: Time, sent: &Sent| {
            n += u32::from(is_long(sent));
            !is_long(sent) || n % 5 == 0
        }
    };
    for is_lossy in [false, true] {
        let mut w = World::new(ClientConfig::new(Transport::Udp));
        w.submit(getattr());
        serve(&mut w, TRIP * 2, |_, _| true);
        w.submit_reads(20);
        let start = w.now;
        if is_lossy {
            serve(&mut w, Duration::from_secs(300), lossy(start));
        } else {
            serve(&mut w, Duration::from_secs(60), outage(start));
        }
        assert!(
            w.done.len() == 21 && w.done.iter().all(|(_, result)| result.is_ok()),
            "{is_lossy}: {:?}",
            w.client.stats()
        );
        assert!(!w.client.drops_fragments());
    }
}

/// Single packets are used while the receiver has no room for fragments; if fragments are lost again after that, the
/// path drops them.
#[test]
fn repeated_fragment_loss_shortens_blocks_for_good() {
    for is_for_good in [false, true] {
        let mut w = World::new(ClientConfig::new(Transport::Udp));
        w.submit_reads(4);
        serve(&mut w, Duration::from_secs(5), |_, _| true);
        assert_eq!(w.done.len(), 4);
        w.submit_reads(8);
        serve(&mut w, Duration::from_secs(4), |_, sent| !is_long(sent));
        assert_eq!(w.done.len(), 12, "within 4 s: {:?}", w.client.stats());
        assert!(w.done[4..].iter().all(|(_, result)| *result == Err(CallFailure::Fragments)));
        assert!(longest(&w.client) < 1400 && !w.client.drops_fragments() && w.client.reply_max().is_some());
        serve(&mut w, Duration::from_secs(31), |_, sent| !is_long(sent));
        assert!(longest(&w.client) > 1400 && w.client.reply_max().is_none());
        w.submit_reads(8);
        serve(&mut w, Duration::from_secs(4), |_, sent| !(is_for_good && is_long(sent)));
        assert_eq!((w.done.len(), w.client.drops_fragments()), (20, is_for_good), "{:?}", w.client.stats());
    }
}

/// Blocks of a fixed size are not shortened on a guess: the server may be slow.
#[test]
fn fixed_blocks_outlast_a_slow_server() {
    let mut w = World::new(ClientConfig { block: BlockSize::Fixed(8192), ..ClientConfig::new(Transport::Udp) });
    w.submit_all((0..4).map(|n| write(n * 5000, 5000)));
    serve(&mut w, Duration::from_secs(5), |_, _| true);
    w.submit_all((4..12).map(|n| write(n * 5000, 5000)));
    serve(&mut w, Duration::from_secs(4), |_, sent| !is_long(sent));
    serve(&mut w, Duration::from_secs(10), |_, _| true);
    assert!(w.done.len() == 12 && w.done.iter().all(|(_, result)| result.is_ok()), "{:?}", w.done);
    assert!(!w.client.drops_fragments() && longest(&w.client) == 8192);
}

/// A request that cannot be shortened waits for room.
#[test]
fn long_symlink_outlasts_a_full_receiver() {
    let mut w = World::new(ClientConfig::new(Transport::Udp));
    w.submit_all([write(0, 5000), read(0)]);
    serve(&mut w, Duration::from_secs(5), |_, _| true);
    w.submit_all((0..8).map(|n| write(n * 5000, 5000)));
    let link = w.submit(symlink(1600));
    serve(&mut w, Duration::from_secs(4), |_, sent| !is_long(sent));
    assert_eq!(w.done.len(), 10, "within 4 s: {:?}", w.client.stats());
    assert!(w.done[2..].iter().all(|(id, result)| *id != link && *result == Err(CallFailure::Fragments)));
    serve(&mut w, Duration::from_secs(40), |_, _| true);
    assert!(w.done[10..].iter().all(|(id, result)| *id == link && result.is_ok()) && w.done.len() == 11);
    assert!(!w.client.drops_fragments());
}

/// Blocks get short before the receiver's memory is full.
#[test]
fn used_up_reassembly_budget_shortens_blocks_for_30_s() {
    let mut w = World::new(ClientConfig::new(Transport::Udp));
    let mut n = 0;
    let mut lost = 0;
    while w.client.reply_max().is_none() {
        w.submit_all((0..10).map(|n| read_of(n * 8192, 8192)));
        serve(&mut w, MS * 200, |_, sent| {
            n += u32::from(is_long(sent));
            lost += u32::from(is_long(sent) && n % 10 == 0);
            !is_long(sent) || n % 10 != 0
        });
        assert!(lost < 200, "{:?}", w.client.stats());
    }
    // Fragments of 8 KiB but one, 2304 bytes each, in 1 MiB.
    assert!((60..120).contains(&lost), "{lost} lost");
    assert!(!w.client.drops_fragments());
    serve(&mut w, Duration::from_secs(45), |_, _| true);
    assert!(w.client.reply_max().is_none());
}

/// A tunnel that drops whole Ethernet packets.
#[test]
fn dropped_packets_make_shorter_ones_be_tried() {
    for (carried, steps) in [(1252u32, 2), (548, 3)] {
        for is_write in [false, true] {
            let block = |w: &World| {
                let fh = Fh(Bytes::from_static(b"file"));
                if is_write { w.client.write_block(&fh, u32::MAX) } else { longest(&w.client) }
            };
            let file = |offset, block: u32| {
                if is_write { write(offset, block as usize) } else { read_of(offset, block) }
            };
            let mut w = World::new(ClientConfig::new(Transport::Udp));
            w.submit(getattr());
            serve(&mut w, TRIP * 2, |_, _| true);
            let passes = |_: Time, sent: &Sent| sent.payload.len().max(sent.reply_len()) <= carried as usize;
            for step in 0..steps {
                let before = w.done.len();
                let block = block(&w);
                w.submit_all((0..3).map(|n| file(n * 8192, block)));
                serve(&mut w, Duration::from_secs(8), passes);
                let failed =
                    w.done[before..].iter().filter(|(_, result)| *result == Err(CallFailure::Fragments)).count();
                assert_eq!((w.done.len() - before, failed), (3, 3), "{carried}, {step}: {:?}", w.client.stats());
            }
            let block = block(&w);
            assert!(block > carried / 2, "{block}");
            w.submit(file(0, block));
            serve(&mut w, TRIP * 4, passes);
            assert!(w.done.last().is_some_and(|(_, result)| result.is_ok()), "{:?}", w.done.last());
            assert!(w.client.drops_packets());
        }
    }
}

/// With one-frame blocks from the start a black hole is recognised, and many losses are not taken for one.
#[test]
fn black_hole_is_told_from_frame_loss() {
    for is_shut in [true, false] {
        let mut w = World::new(ClientConfig::new(Transport::Udp));
        w.submit(getattr());
        serve(&mut w, TRIP * 2, |_, _| true);
        w.submit_all((0..8).map(|n| write(n * 1300, 1300)));
        let mut n = 0;
        let passes = |_: Time, sent: &Sent| {
            n += u32::from(sent.proc == Proc::Write);
            sent.proc != Proc::Write || !is_shut && n % 4 == 0
        };
        serve(&mut w, Duration::from_secs(60), passes);
        assert_eq!((w.done.len(), w.client.drops_packets()), (9, is_shut), "{:?}", w.client.stats());
    }
}
