//! Small requests do not wait behind file data.

mod common;

use std::time::Duration;

use common::{MS, Sent, World, getattr, read, write};
use remora_client::{ClientConfig, Request, Transport, WindowSize};
use remora_wire::nfs3::{Call, CommitArgs, CreateArgs, CreateHow, DirOp, Fh, Proc, SetAttr};
use remora_wire::rpc::OpaqueAuth;
use remora_wire::urgency::Urgency;

fn commit() -> Request {
    Request::Nfs(Call::Commit(CommitArgs { fh: Fh(bytes::Bytes::from_static(b"file")), offset: 0, count: 0 }))
}

/// A client with a full window of WRITEs in flight and more waiting.
fn busy() -> (World, Vec<Sent>) {
    let mut w = World::new(ClientConfig { window: WindowSize::Fixed(3), ..ClientConfig::new(Transport::Udp) });
    w.submit_all((0..12).map(|i| write(i * 5000, 5000)));
    let in_flight = w.sent();
    assert_eq!((in_flight.len(), w.client.room()), (3, 0));
    (w, in_flight)
}

#[test]
fn small_requests_pass_the_window_and_go_first() {
    for (small, proc) in [
        (write(1 << 20, 100), Proc::Write),
        (write(1 << 20, 1300), Proc::Write),
        (commit(), Proc::Commit),
        (getattr(), Proc::GetAttr),
    ] {
        let (mut w, in_flight) = busy();
        w.submit(small);
        let sent = w.sent();
        assert_eq!(sent.iter().map(|s| s.proc).collect::<Vec<_>>(), [proc], "at once");
        assert!(sent[0].payload.len() < 1500);
        w.answer(&in_flight[0]);
        assert_eq!(w.sent().len(), 1, "and it takes no place in the window");
    }
}

/// Submits file data with this urgency.
fn submit_urgent(w: &mut World, request: Request, urgency: Urgency) {
    let (now, none) = (w.now, OpaqueAuth::none());
    w.client.submit_as(now, request, &none, Some(urgency)).unwrap();
}

#[test]
fn urgent_data_passes_a_full_window_and_has_one_itself() {
    let (mut w, in_flight) = busy();
    (0..4).for_each(|i| submit_urgent(&mut w, read(i * 5000), Urgency::Foreground));
    assert_eq!((w.client.room(), w.client.urgent_room()), (0, 0));
    let procs: Vec<_> = w.sent().iter().map(|s| s.proc).collect();
    assert_eq!(procs, [Proc::Read; 3], "beside the three WRITEs in flight");
    w.answer(&in_flight[0]);
    assert_eq!(w.sent().len(), 0, "the WRITEs that wait have no room, and the fourth READ has none");
}

#[test]
fn urgent_data_leaves_before_data_that_waits() {
    let (mut w, in_flight) = busy();
    for i in 0..3 {
        submit_urgent(&mut w, read(i * 5000), Urgency::Sync);
        assert_eq!(w.sent().remove(0).proc, Proc::Read);
    }
    submit_urgent(&mut w, read(1 << 20), Urgency::Sync);
    submit_urgent(&mut w, write(1 << 20, 5000), Urgency::WriteBack);
    let all = w.client.stats().requests;
    in_flight.iter().for_each(|sent| w.answer(sent));
    assert_eq!((w.sent().len(), all), (0, 17), "what is urgent fills the window");
}

#[test]
fn many_small_writes_are_bulk() {
    let (mut w, _) = busy();
    w.submit_all((0..100).map(|i| write(i, 100)));
    assert_eq!(w.sent().len(), 8);
    assert!(w.pass(MS * 100).iter().all(|s| s.proc == Proc::Null), "the rest waits for the window");
}

#[test]
fn blocks_of_a_frame_are_bulk_where_blocks_are_small() {
    let mut w =
        World::new(ClientConfig { block: remora_client::BlockSize::Fixed(1024), ..ClientConfig::new(Transport::Udp) });
    w.submit_all((0..20).map(|i| write(i * 1024, 1024)));
    assert!(w.sent().len() < 20);
}

#[test]
fn lost_small_request_precedes_lost_file_data() {
    let (mut w, in_flight) = busy();
    w.submit(getattr());
    let small = w.sent().remove(0);
    w.submit(getattr());
    let later = w.sent().remove(0);
    // After the link was measured, everything before the last call is lost.
    w.now += MS * 300;
    w.answer(&later);
    let again: Vec<u32> = w.pass(MS).iter().filter(|s| s.proc != Proc::Null).map(|s| s.xid).collect();
    assert_eq!(again, [small.xid, in_flight[0].xid, in_flight[1].xid, in_flight[2].xid]);
}

#[test]
fn room_counts_what_waits() {
    let mut w = World::new(ClientConfig { window: WindowSize::Fixed(4), ..ClientConfig::new(Transport::Udp) });
    for left in (0..4).rev() {
        w.submit(read(0));
        assert_eq!(w.client.room(), left);
    }
    w.submit(read(0));
    assert_eq!((w.client.room(), w.sent().len()), (0, 4));
}

/// Transmissions of consecutive CREATEs to a server that answers NULL at once and CREATE after `slow`, on a link that
/// has lost something.
fn creates_at(slow: Duration) -> Vec<usize> {
    let mut w = World::new(ClientConfig { window: WindowSize::Fixed(3), ..ClientConfig::new(Transport::Udp) });
    w.submit_all((0..3).map(read));
    let reads = w.sent();
    w.now += MS * 50;
    w.answer(&reads[1]);
    for lost in w.pass(MS * 500).iter().filter(|s| s.proc == Proc::Read) {
        w.answer(lost);
    }
    w.answer(&reads[2]);
    w.pass(MS * 10);
    assert_eq!((w.done.len(), w.client.stats().retransmissions), (3, 1));
    let create = || {
        let at = DirOp { dir: Fh(bytes::Bytes::from_static(b"dir")), name: bytes::Bytes::from_static(b"name") };
        Request::Nfs(Call::Create(CreateArgs { at, how: CreateHow::Guarded(SetAttr::NONE) }))
    };
    let mut counts = Vec::new();
    for _ in 0..20 {
        w.submit(create());
        let (first, mut again) = (w.sent().remove(0), 0);
        for _ in 0..slow.as_millis() / 10 {
            let sent = w.pass(MS * 10);
            again += sent.iter().filter(|s| s.proc == Proc::Create).count();
            sent.iter().filter(|s| s.proc == Proc::Null).for_each(|s| w.answer(s));
        }
        w.answer(&first);
        w.pass(MS * 50);
        counts.push(1 + again);
    }
    counts
}

#[test]
fn slow_changes_are_soon_not_retransmitted() {
    assert_eq!(creates_at(MS * 60), [1; 20]);
    for slow in [120, 300, 1000] {
        let counts = creates_at(MS * slow);
        assert!(counts[..3].iter().sum::<usize>() <= 10, "{slow} ms: {counts:?}");
        assert_eq!(counts[3..], [1; 17], "{slow} ms: each once");
    }
}
