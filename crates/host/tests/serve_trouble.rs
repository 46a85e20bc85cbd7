//! The server under clients and disks that misbehave: each harms itself alone.

mod serve_kit;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_host::server::{GroupLookup, ServerOptions, Serving};
use remora_server::{Access, Squash, Terms};
use remora_vfs::{MemFs, Vfs, memory::OpKind};
use remora_wire::mount;
use remora_wire::nfs3::{Call, Fh, Status};
use remora_wire::record::mark;
use remora_wire::rpc::Outcome;
use serve_kit::*;

fn memory() -> Arc<MemFs> {
    Arc::new(MemFs::new(1))
}

fn limited(vfs: Arc<dyn Vfs>, set: impl FnOnce(&mut remora_host::server::ServeLimits)) -> ServerOptions {
    let mut opts = options(vfs);
    set(&mut opts.limits);
    opts
}

#[test]
fn garbage_closes_only_its_connection() {
    let (serving, addr) = start(options(memory()));
    let mut good = Tcp::connect(addr);
    let root = good.mount("/");
    let oversize = mark((1 << 20) + (64 << 10) + 1);
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x7f; 4], &oversize, &[0; 8]] {
        let mut bad = Tcp::connect(addr);
        bad.send_raw(garbage);
        assert_eq!(bad.try_receive(), None, "{garbage:?}");
    }
    assert_eq!(good.call(&Call::GetAttr(root)).status(), None);
    wait_until(&serving, |s| s.sockets.closed_bad_record == 4 && s.connections == 1);

    // A record that is no call is dropped; the stream can be read on.
    good.send(b"nonsense");
    good.mount("/");
    assert_eq!(serving.stats().core.not_calls, 1);
}

#[test]
fn slow_group_lookup_delays_only_its_user() {
    const SLOW: u32 = 7;
    let (asked, was_asked) = mpsc::channel();
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let groups = GroupLookup::new(move |uid| {
        asked.send(uid).unwrap();
        if uid == SLOW {
            gate.lock().unwrap().recv().unwrap();
        }
        Ok(Some(vec![uid]))
    });
    let (serving, addr) = start(ServerOptions { groups: Some(groups), ..options(memory()) });
    let (mut gone, mut tcp, mut udp) = (Tcp::connect(addr), Tcp::connect(addr), Udp::connect(addr));
    let call = Call::GetAttr(tcp.mount("/"));
    let ids: Vec<u32> = std::iter::repeat_with(xid).take(5).collect();
    gone.send(&nfs_message_of(SLOW, ids[0], &call));
    tcp.send(&nfs_message_of(SLOW, ids[1], &call));
    tcp.send(&nfs_message_of(SLOW, ids[2], &call));
    udp.send(&nfs_message_of(SLOW, ids[3], &call));
    tcp.send(&nfs_message_of(8, ids[4], &call));
    assert_eq!(split_reply(&tcp.receive()).0, ids[4], "another user overtakes");
    drop(gone);
    wait_until(&serving, |s| s.connections == 1);
    release.send(()).unwrap();
    let mut answered = [split_reply(&tcp.receive()).0, split_reply(&tcp.receive()).0];
    answered.sort_unstable();
    assert_eq!((answered, split_reply(&udp.receive()).0), ([ids[1], ids[2]], ids[3]));
    tcp.send(&nfs_message_of(SLOW, xid(), &call));
    tcp.receive();
    wait_until(&serving, |s| s.executing == 0);
    drop(serving);
    let own = rustix::process::getuid().as_raw();
    let mut asked: Vec<u32> = was_asked.try_iter().filter(|uid| *uid != own).collect();
    asked.sort_unstable();
    assert_eq!(asked, [SLOW, 8], "one look-up for each user");
}

#[test]
fn idle_connections_do_not_block_others() {
    let (serving, addr) = start(options(memory()));
    let idle: Vec<Tcp> = (0..200).map(|_| Tcp::connect(addr)).collect();
    let mut busy = Tcp::connect(addr);
    let root = busy.mount("/");
    for _ in 0..100 {
        assert_eq!(busy.call(&Call::GetAttr(root.clone())).status(), None);
    }
    wait_until(&serving, |s| s.connections == 201);
    drop(idle);
    wait_until(&serving, |s| s.connections == 1);
}

#[test]
fn client_that_never_reads_is_dropped() {
    let mut opts = limited(memory(), |l| l.stall_max = Duration::from_millis(300));
    opts.core.limits.in_flight_bytes_max = 32 << 20;
    let (serving, addr) = start(opts);
    let mut good = Tcp::connect(addr);
    let root = good.mount("/");
    let fh = good.create(&root, "f");
    good.write(&fh, &Bytes::from(vec![1; 1 << 20]));

    // Asks for more than sockets can hold; how much it gets to send depends on them.
    let bad = Tcp::connect(addr);
    bad.stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let message = nfs_message(xid(), &read(&fh, 1 << 20));
    for _ in 0..10_000 {
        let sent = (&bad.stream).write_all(&[&mark(message.len()), &message[..]].concat());
        if sent.is_err_and(|e| e.kind() != ErrorKind::Interrupted) {
            break;
        }
    }
    assert_eq!(good.read(&fh, 1 << 20).len(), 1 << 20);
    wait_until(&serving, |s| s.sockets.closed_stalled == 1 && s.connections == 1 && s.under_way == 0);
    assert_eq!(good.read(&fh, 1 << 20).len(), 1 << 20);
}

#[test]
fn steady_slow_reader_is_not_stalled() {
    let (serving, addr) = start(limited(memory(), |l| l.stall_max = Duration::from_secs(1)));
    let mut good = Tcp::connect(addr);
    let root = good.mount("/");
    let fh = good.create(&root, "f");
    good.write(&fh, &Bytes::from(vec![1; 1 << 20]));

    let mut slow = Tcp::connect_narrow(addr, 64 << 10);
    (0..8).for_each(|_| slow.send(&nfs_message(xid(), &read(&fh, 1 << 20))));
    let mut part = vec![0; 32 << 10];
    for _ in 0..80 {
        slow.stream.read_exact(&mut part).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(serving.stats().sockets.closed_stalled, 0);
    }
}

#[test]
fn slow_reader_gets_all_replies() {
    // Two READs of 1 MiB, each with a little more for its message and the reply's head.
    let (serving, addr) = start(limited(memory(), |l| l.connection_bytes_max = (2 << 20) + (16 << 10)));
    let mut tcp = Tcp::connect(addr);
    let root = tcp.mount("/");
    let fh = tcp.create(&root, "f");
    tcp.write(&fh, &Bytes::from(vec![1; 1 << 20]));
    for _ in 0..24 {
        tcp.send(&nfs_message(xid(), &read(&fh, 1 << 20)));
    }
    two_are_under_way(&serving);
    for _ in 0..24 {
        assert!(tcp.receive().len() > 1 << 20);
    }
}

/// And never more for a while, since two replies of 1 MiB fill the connection's room.
fn two_are_under_way(serving: &Serving) {
    // More than 2 can be seen only once there are 2.
    wait_until(serving, |s| s.under_way == 2);
    let until = Instant::now() + Duration::from_millis(200);
    while Instant::now() < until {
        assert!(serving.stats().under_way <= 2);
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn unread_mount_lists_fill_the_budget_of_their_connection() {
    let fs = memory();
    let names: Vec<String> = (0..1100).map(|n| format!("/{n:0>1000}")).collect();
    let mut opts = sharing(names.iter().map(|name| (&name[..], fs.clone() as Arc<dyn Vfs>)).collect());
    opts.limits.connection_bytes_max = (2 << 20) + (16 << 10);
    let (serving, addr) = start(opts);
    let mut tcp = Tcp::connect(addr);
    for _ in 0..24 {
        tcp.send(&mount_message(xid(), &mount::Call::Export));
    }
    two_are_under_way(&serving);
    for _ in 0..24 {
        assert!(tcp.receive().len() > 1_000_000);
    }
}

#[test]
fn incomplete_requests_and_idle_connections_time_out() {
    let set = |l: &mut remora_host::server::ServeLimits| {
        (l.partial_max, l.idle_max) = (Duration::from_millis(200), Some(Duration::from_millis(400)));
    };
    let (serving, addr) = start(limited(memory(), set));
    let mut partial = Tcp::connect(addr);
    let mut idle = Tcp::connect(addr);
    partial.send_raw(&mark(1 << 20));
    assert_eq!(partial.try_receive(), None);
    assert_eq!(idle.try_receive(), None);
    let stats = serving.stats().sockets;
    assert_eq!((stats.closed_partial, stats.closed_idle), (1, 1));
}

#[test]
fn fragmented_requests_do_not_deadlock() {
    // Room for the halves of both, not for one and a half.
    let (_serving, addr) = start(limited(memory(), |l| l.receive_bytes_max = 1 << 20));
    let mut clients = [Tcp::connect(addr), Tcp::connect(addr)];
    let root = clients[0].mount("/");
    let messages = ["a", "b"].map(|name| {
        let fh = clients[0].create(&root, name);
        nfs_message(xid(), &write(&fh, Bytes::from(vec![1; 800 << 10])))
    });
    let halves = messages.iter().map(|m| m.split_at(300 << 10));
    for (tcp, (first, _)) in clients.iter_mut().zip(halves.clone()) {
        tcp.send_raw(&[&(first.len() as u32).to_be_bytes(), first].concat());
    }
    std::thread::sleep(Duration::from_millis(100));
    for (tcp, (_, second)) in clients.iter_mut().zip(halves) {
        tcp.send_raw(&[&mark(second.len()), second].concat());
    }
    for (tcp, message) in clients.iter_mut().zip(&messages) {
        assert_eq!(tcp.receive()[..4], message[..4]);
    }
}

/// Sends the mark of a request of 1 MiB, and `bytes` of it, on 16 connections from each of five addresses.
fn half_requests(addr: SocketAddr, bytes: usize) -> Vec<Tcp> {
    let half = [&mark(1 << 20)[..], &vec![0; bytes]].concat();
    let bad = (2..=6).flat_map(|n| (0..16).map(move |_| Tcp::connect_from(Ipv4Addr::new(127, 0, 0, n), addr)));
    bad.inspect(|bad| _ = (&bad.stream).write_all(&half)).collect()
}

#[test]
fn half_requests_of_strangers_leave_room_for_writes() {
    let access = Access::of(["127.0.0.1".parse().unwrap()], Terms { squash: Squash::None, ..Terms::default() });
    let (serving, addr) = start(with_access(memory(), access.unwrap()));
    let mut good = Tcp::connect(addr);
    let root = good.mount("/");
    let fh = good.create(&root, "f");
    let bad = half_requests(addr, 100 << 10);
    wait_until(&serving, |s| s.connections == 81);
    good.write(&fh, &Bytes::from(vec![1; 1 << 20]));
    drop(bad);
    // What a stranger asks for is refused, and it may ask again.
    let mut stranger = Tcp::connect_from(Ipv4Addr::new(127, 0, 0, 2), addr);
    for _ in 0..2 {
        assert_eq!(stranger.call(&read(&fh, 1 << 20)).status(), Some(Status::Access));
        assert_eq!(stranger.call(&write(&fh, vec![1; 1 << 20].into())).status(), Some(Status::Access));
    }
}

#[test]
fn half_requests_of_clients_leave_room_for_writes() {
    for bytes in [0, 15 << 10, 100 << 10] {
        let (serving, addr) = start(options(memory()));
        let mut good = Tcp::connect(addr);
        let root = good.mount("/");
        let fh = good.create(&root, "f");
        let bad = half_requests(addr, bytes);
        wait_until(&serving, |s| s.connections == 81);
        for _ in 0..10 {
            good.write(&fh, &Bytes::from(vec![1; 1 << 20]));
        }
        drop(bad);
    }
}

#[test]
fn large_requests_of_many_connections_wait_and_all_pass() {
    // Room for one of them at a time.
    let (_serving, addr) = start(limited(memory(), |l| l.receive_bytes_max = 2 << 20));
    let mut clients: Vec<Tcp> = (0..8).map(|_| Tcp::connect(addr)).collect();
    let root = clients[0].mount("/");
    let fh = clients[0].create(&root, "f");
    let data = Bytes::from(vec![1; 1 << 20]);
    std::thread::scope(|scope| {
        for tcp in &mut clients {
            let message = nfs_message(xid(), &write(&fh, data.clone()));
            scope.spawn(move || {
                let record = [&mark(message.len())[..], &message].concat();
                let (first, second) = record.split_at(200 << 10);
                tcp.send_raw(first);
                tcp.send_raw(second);
                assert_eq!(tcp.receive()[..4], message[..4]);
            });
        }
    });
}

#[test]
fn export_change_for_a_peer_closes_its_connection() {
    let vfs = memory();
    let (serving, addr) = start(options(vfs.clone()));
    let mut tcp = Tcp::connect(addr);
    let root = tcp.mount("/");
    let fh = tcp.create(&root, "f");
    let exports = |clients: &str| {
        let terms = Terms { squash: Squash::None, ..Terms::default() };
        with_access(vfs.clone(), Access::of([clients.parse().unwrap()], terms).unwrap()).core.exports
    };
    serving.set_exports(exports("127.0.0.0/8"));
    tcp.write(&fh, &Bytes::from(vec![1; 1 << 20]));
    serving.set_exports(exports("10.0.0.1"));
    assert_eq!(tcp.try_receive(), None);
    let mut stranger = Tcp::connect(addr);
    assert_eq!(stranger.call(&Call::GetAttr(root)).status(), Some(Status::Access));
    assert_eq!(
        stranger.call(&write(&fh, vec![1; 1 << 20].into())).status(),
        Some(Status::Access),
        "dirty data fail, and do not wait for ever"
    );
    serving.set_exports(exports("127.0.0.0/8"));
    assert_eq!(stranger.try_receive(), None, "its send buffer is a stranger's");
    Tcp::connect(addr).write(&fh, &Bytes::from(vec![1; 1 << 20]));
}

#[test]
fn longest_idle_connection_is_evicted_when_full() {
    let set =
        |l: &mut remora_host::server::ServeLimits| (l.connections_max, l.evict_min) = (2, Duration::from_millis(500));
    let (serving, addr) = start(limited(memory(), set));
    let mut old = Tcp::connect(addr);
    let root = old.mount("/");
    let mut second = Tcp::connect(addr);
    second.mount("/");
    let mut refused = Tcp::connect(addr);
    assert_eq!(refused.try_receive(), None, "nobody has been idle for long enough");
    std::thread::sleep(Duration::from_millis(600));
    second.mount("/");
    let mut third = Tcp::connect(addr);
    assert_eq!(third.call(&Call::GetAttr(root)).status(), None);
    assert_eq!(old.try_receive(), None);
    second.mount("/");
    let stats = serving.stats().sockets;
    assert_eq!((stats.refused, stats.closed_idle), (1, 1));
}

#[test]
fn strangers_with_all_seats_yield_to_clients() {
    let access = Access::of(["127.0.0.1".parse().unwrap()], Terms::default()).unwrap();
    let mut options = with_access(memory(), access);
    (options.limits.connections_max, options.limits.evict_min) = (4, Duration::from_secs(3600));
    let (serving, addr) = start(options);
    let from = |n| Tcp::connect_from(Ipv4Addr::new(127, 0, 0, n), addr);
    let mut strangers: Vec<Tcp> = (2..6).map(from).collect();
    for tcp in &mut strangers {
        assert_eq!(tcp.call(&Call::GetAttr(Fh(Bytes::new()))).status(), Some(Status::Access));
    }
    assert_eq!(from(6).try_receive(), None, "each has one");
    // Unread refusals protect no place.
    strangers[0].send(&nfs_message(xid(), &Call::GetAttr(Fh(Bytes::new()))));
    let mut clients: Vec<Tcp> = Vec::new();
    for _ in 0..4 {
        let mut client = from(1);
        client.mount("/");
        clients.push(client);
        wait_until(&serving, |s| s.connections == 4);
    }
    for tcp in &mut strangers[1..] {
        assert_eq!(tcp.try_receive(), None);
    }
    assert_eq!(from(6).try_receive(), None, "strangers take no client's place");
    clients.iter_mut().for_each(|client| _ = client.mount("/"));
}

#[test]
fn host_with_busy_connections_excludes_no_other() {
    let set =
        |l: &mut remora_host::server::ServeLimits| (l.connections_max, l.evict_min) = (4, Duration::from_secs(3600));
    let (serving, addr) = start(limited(memory(), set));
    let crowd_at = |addr| Tcp::connect_from(Ipv4Addr::new(127, 0, 0, 2), addr);
    let mut crowd = [crowd_at(addr), crowd_at(addr), crowd_at(addr), crowd_at(addr)];
    for tcp in &mut crowd {
        tcp.mount("/");
    }
    // A connection is not idle while the thread that sent its reply still holds the permit.
    wait_until(&serving, |s| s.under_way == 0);
    let mut others = Vec::new();
    for quietest in &mut crowd[..2] {
        let mut other = Tcp::connect(addr);
        other.mount("/");
        others.push(other);
        assert_eq!(quietest.try_receive(), None);
        wait_until(&serving, |s| s.connections == 4);
    }
    for from in [Tcp::connect, crowd_at] {
        assert_eq!(from(addr).try_receive(), None, "each has as many now");
    }
    for tcp in crowd[2..].iter_mut().chain(&mut others) {
        tcp.mount("/");
    }
    let stats = serving.stats().sockets;
    assert_eq!((stats.refused, stats.closed_idle), (2, 2));
}

#[test]
fn replies_reach_a_half_closed_client() {
    let (serving, addr) = start(options(memory()));
    let mut tcp = Tcp::connect(addr);
    let root = tcp.mount("/");
    tcp.send(&nfs_message(xid(), &Call::GetAttr(root)));
    tcp.stream.shutdown(Shutdown::Write).unwrap();
    tcp.receive();
    assert_eq!(tcp.try_receive(), None);
    wait_until(&serving, |s| s.connections == 0);
}

#[test]
fn panicking_job_fails_alone() {
    let fs = memory();
    let mut opts = options(fs.clone());
    opts.executor_threads = 1;
    let (serving, addr) = start(opts);
    let mut tcp = Tcp::connect(addr);
    let root = tcp.mount("/");
    fs.set_fault(|kind| if kind == OpKind::FsStat { panic!("a fault in the file system, on purpose") } else { None });
    for _ in 0..3 {
        let (_, outcome, _) = split_reply(&tcp.exchange(&nfs_message(xid(), &Call::FsStat(root.clone()))));
        assert_eq!(outcome, Outcome::SystemErr);
        assert_eq!(tcp.call(&Call::GetAttr(root.clone())).status(), None);
    }
    assert_eq!(serving.stats().sockets.job_panics, 3);
}

/// A file system whose FSSTAT takes this long.
fn slow(delay: Duration) -> Arc<MemFs> {
    slow_at(OpKind::FsStat, delay)
}

/// One where this takes that long.
fn slow_at(what: OpKind, delay: Duration) -> Arc<MemFs> {
    let fs = memory();
    fs.set_fault(move |kind| {
        if kind == what {
            std::thread::sleep(delay);
        }
        None
    });
    fs
}

#[test]
fn datagrams_over_the_limit_are_dropped() {
    let mut opts = options(slow(Duration::from_millis(100)));
    opts.core.limits.in_flight_max = 1;
    let (serving, addr) = start(opts);
    let mut udp = Udp::connect(addr);
    let root = udp.mount("/");
    wait_until(&serving, |s| s.under_way == 0);
    let calls = [nfs_message(xid(), &Call::FsStat(root.clone())), nfs_message(xid(), &Call::FsStat(root))];
    calls.iter().for_each(|c| udp.send(c));
    assert_eq!(udp.receive()[..4], calls[0][..4]);
    wait_until(&serving, |s| s.sockets.datagrams_out == 2 && s.under_way == 0);
    assert_eq!(serving.stats().sockets.datagrams_dropped, 1);
}

#[test]
fn shutdown_lets_executing_jobs_finish() {
    let (serving, addr) = start(options(slow(Duration::from_millis(100))));
    let (mut tcp, mut udp) = (Tcp::connect(addr), Udp::connect(addr));
    let root = udp.mount("/");
    let before = serving.stats().core.executed;
    tcp.send(&nfs_message(xid(), &Call::FsStat(root.clone())));
    udp.send(&nfs_message(xid(), &Call::FsStat(root.clone())));
    wait_until(&serving, |s| s.core.executed == before + 2);
    assert_eq!(serving.shutdown().abandoned, 0);
    assert_eq!(nfs_reply(&Call::FsStat(root.clone()), &tcp.receive()).status(), None);
    assert_eq!(nfs_reply(&Call::FsStat(root), &udp.receive()).status(), None);
    assert_eq!(tcp.try_receive(), None);
}

/// A server, a call that it is executing for a connection that its client has given up, and the one on which that client
/// has asked for it again.
fn asked_again(set: impl FnOnce(&mut remora_host::server::ServeLimits)) -> (Serving, Call, Tcp) {
    let (serving, addr) = start(limited(slow_at(OpKind::Create, Duration::from_secs(1)), set));
    let (mut first, mut second) = (Tcp::connect(addr), Tcp::connect(addr));
    let call = create(&first.mount("/"), "f");
    let message = nfs_message(xid(), &call);
    let before = serving.stats().core.executed;
    first.send(&message);
    wait_until(&serving, |s| s.core.executed == before + 1);
    second.send(&message);
    wait_until(&serving, |s| s.core.cache.in_progress_parked == 1);
    (serving, call, second)
}

#[test]
fn shutdown_waits_for_reply_to_retransmission() {
    let (serving, call, mut tcp) = asked_again(|_| ());
    assert_eq!(serving.shutdown().abandoned, 0);
    assert_eq!(nfs_reply(&call, &tcp.receive()).status(), None);
    assert_eq!(tcp.try_receive(), None);
}

#[test]
fn retransmission_on_half_closed_connection_is_answered() {
    let (serving, call, mut tcp) = asked_again(|_| ());
    tcp.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(nfs_reply(&call, &tcp.receive()).status(), None);
    assert_eq!(tcp.try_receive(), None);
    wait_until(&serving, |s| s.connections == 0);
}

#[test]
fn connection_awaiting_retransmission_is_not_evicted() {
    let (serving, call, mut tcp) = asked_again(|l| (l.connections_max, l.evict_min) = (2, Duration::ZERO));
    assert_eq!(Tcp::connect(serving.local_addrs()[0]).try_receive(), None, "both have something under way");
    assert_eq!(nfs_reply(&call, &tcp.receive()).status(), None);
    tcp.mount("/");
    assert_eq!(serving.stats().sockets.refused, 1);
}

#[test]
fn connection_awaiting_retransmission_is_not_idle() {
    let (serving, call, mut tcp) = asked_again(|l| l.idle_max = Some(Duration::from_millis(100)));
    std::thread::sleep(Duration::from_millis(500));
    let ping = mount_message(xid(), &mount::Call::Null);
    assert_eq!(tcp.exchange(&ping)[..4], ping[..4]);
    assert_eq!(nfs_reply(&call, &tcp.receive()).status(), None);
    assert_eq!(tcp.try_receive(), None);
    wait_until(&serving, |s| s.sockets.closed_idle == 1);
}

#[test]
fn shutdown_keeps_unread_replies() {
    let (serving, addr) = start(limited(memory(), |l| l.shutdown_max = Duration::from_secs(1)));
    let mut good = Tcp::connect(addr);
    let root = good.mount("/");
    let fh = good.create(&root, "f");
    good.write(&fh, &Bytes::from(vec![1; 4 << 10]));
    drop(good);

    let mut tcp = Tcp::connect_narrow(addr, 4 << 10);
    let before = serving.stats().core.executed;
    (0..20).for_each(|_| tcp.send(&nfs_message(xid(), &read(&fh, 4 << 10))));
    wait_until(&serving, |s| s.core.executed == before + 20 && s.under_way == 0);
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| serving.shutdown());
        std::thread::sleep(Duration::from_millis(200));
        // It may be refused by now.
        let late = nfs_message(xid(), &read(&fh, 4 << 10));
        let _ = tcp.stream.write_all(&[&mark(late.len()), &late[..]].concat());
        assert_eq!(ending.join().unwrap().abandoned, 0);
    });
    for n in 0..20 {
        assert!(tcp.try_receive().is_some_and(|reply| reply.len() > 4 << 10), "{n} replies came");
    }
    assert_eq!(tcp.try_receive(), None);
}

#[test]
fn shutdown_counts_requests_being_received() {
    for _ in 0..50 {
        let (serving, addr) = start(options(memory()));
        let call = Call::GetAttr(Udp::connect(addr).mount("/"));
        let over = AtomicBool::new(false);
        let abandoned = std::thread::scope(|scope| {
            scope.spawn(|| {
                let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
                while !over.load(Ordering::Relaxed) {
                    udp.send_to(&nfs_message(xid(), &call), addr).ok();
                }
            });
            wait_until(&serving, |s| s.sockets.datagrams_in > 500);
            let abandoned = serving.shutdown().abandoned;
            over.store(true, Ordering::Relaxed);
            abandoned
        });
        assert_eq!(abandoned, 0);
    }
}

#[test]
fn shutdown_does_not_wait_for_hanging_disk() {
    let opts = limited(slow(Duration::from_secs(30)), |l| l.shutdown_max = Duration::from_millis(100));
    let (serving, addr) = start(opts);
    let mut udp = Udp::connect(addr);
    let root = udp.mount("/");
    let before = serving.stats().core.executed;
    udp.send(&nfs_message(xid(), &Call::FsStat(root)));
    wait_until(&serving, |s| s.core.executed == before + 1);
    let asked = Instant::now();
    assert_eq!(serving.shutdown().abandoned, 1);
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
}

#[test]
fn slow_disk_gets_many_concurrent_jobs() {
    let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    // A file system in memory does one thing at a time, so there are many.
    let disk = || -> Arc<dyn Vfs> {
        let (fs, at_once, most) = (memory(), at_once.clone(), most.clone());
        fs.set_fault(move |kind| {
            if kind == OpKind::FsStat {
                most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
                at_once.fetch_sub(1, Ordering::SeqCst);
            }
            None
        });
        fs
    };
    let names: Vec<String> = (0..24).map(|n| format!("/{n}")).collect();
    let mut opts = sharing(names.iter().map(|name| (name.as_str(), disk())).collect());
    opts.executor_threads = 2;
    let (_serving, addr) = start(opts);
    let mut tcp = Tcp::connect(addr);
    let roots: Vec<Fh> = names.iter().map(|name| tcp.mount(name)).collect();
    // With two at a time one is begun every 10 ms: nobody could say that nothing moves.
    let calls = || (0..20).flat_map(|_| &roots);
    calls().for_each(|root| tcp.send(&nfs_message(xid(), &Call::FsStat(root.clone()))));
    calls().for_each(|_| drop(tcp.receive()));
    let most = most.load(Ordering::SeqCst);
    assert!(most >= 12, "never more than {most} of 24 at once");
}

#[test]
fn hanging_disk_does_not_block_others() {
    let mut opts = sharing(vec![("/dead", slow(Duration::from_secs(60))), ("/alive", Arc::new(MemFs::new(2)))]);
    opts.executor_threads = 2;
    opts.limits.shutdown_max = Duration::ZERO;
    let (serving, addr) = start(opts);
    let (mut hopeless, mut other) = (Tcp::connect(addr), Tcp::connect(addr));
    let dead = hopeless.mount("/dead");
    let alive = other.mount("/alive");
    let before = serving.stats().core.executed;
    (0..10).for_each(|_| hopeless.send(&nfs_message(xid(), &Call::FsStat(dead.clone()))));
    wait_until(&serving, |s| s.core.executed == before + 10);
    let asked = Instant::now();
    (0..1000).for_each(|_| assert_eq!(other.call(&Call::GetAttr(alive.clone())).status(), None));
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    serving.shutdown();
}
