//! The server over loopback: calls are answered, over UDP and TCP alike, however they arrive.

mod serve_kit;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use remora_host::server::ServerOptions;
use remora_vfs::memory::OpKind;
use remora_vfs::{Cred, MemFs, Vfs};
use remora_wire::nfs3::{Call, Fh, ReadArgs, Reply, SetAttr, SetAttrArgs, Stable, Status, WriteArgs};
use remora_wire::record::mark;
use remora_wire::rpc::Outcome;
use remora_wire::rpcbind::Netid;
use remora_wire::{mount, portmap};
use serve_kit::*;

fn tour(wire: &mut dyn Wire, file: &str, io: usize) {
    for ping in [nfs_message(xid(), &Call::Null), mount_message(xid(), &mount::Call::Null)] {
        assert_eq!(split_reply(&wire.exchange(&ping)).1, Outcome::Success);
    }
    let root = wire.mount("/");
    let fh = wire.create(&root, file);
    let data: Bytes = (0..io).map(|i| (i % 251) as u8).collect();
    wire.write(&fh, &data);
    assert_eq!(wire.read(&fh, io as u32), data);
    match wire.call(&Call::Lookup(at(&root, file))) {
        Reply::Lookup(Ok(found)) => assert_eq!((found.fh, found.attr.unwrap().size), (fh, io as u64)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn directory_is_served_over_udp_and_tcp() {
    let dir = TempDir::new();
    let (serving, addr) = start(options(dir.disk()));
    tour(&mut Udp::connect(addr), "udp", 32 << 10);
    tour(&mut Tcp::connect(addr), "tcp", 1 << 20);
    assert_eq!(std::fs::read(dir.path().join("tcp")).unwrap().len(), 1 << 20);

    let stats = serving.stats();
    assert_eq!((stats.sockets.accepted, stats.sockets.datagram_errors, stats.core.not_calls), (1, 0, 0));
    wait_until(&serving, |s| s.sockets.datagrams_in == s.sockets.datagrams_out);
    assert_eq!(serving.shutdown().abandoned, 0);
}

/// Who opens the portmapper's port to the world, or MOUNT's, has not opened that of NFS.
#[test]
fn port_of_one_program_refuses_other_programs() {
    let any = Some("127.0.0.1:0".parse().unwrap());
    let vfs = Arc::new(MemFs::new(1));
    let (serving, addr) = start(ServerOptions { mount_listen: any, portmap_listen: any, ..options(vfs) });
    let (mount_addr, portmap_addr) = (serving.mount_addr().unwrap(), serving.portmap_addr().unwrap());
    let pings = || {
        [
            nfs_message(xid(), &Call::Null),
            mount_message(xid(), &mount::Call::Null),
            portmap_message(xid(), &portmap::Call::Null),
        ]
    };
    for (at, there) in [(addr, [true; 3]), (mount_addr, [false, true, false]), (portmap_addr, [false, false, true])] {
        let wires: [&mut dyn Wire; 2] = [&mut Udp::connect(at), &mut Tcp::connect(at)];
        for wire in wires {
            let outcomes = pings().map(|ping| split_reply(&wire.exchange(&ping)).1);
            assert_eq!(outcomes, there.map(|yes| if yes { Outcome::Success } else { Outcome::ProgUnavail }), "{at}");
        }
    }
    let root = Tcp::connect(mount_addr).mount("/");
    assert_eq!(Udp::connect(mount_addr).mount("/"), root);
    Tcp::connect(addr).create(&root, "file");
    let create = nfs_message(xid(), &create(&root, "another"));
    assert_eq!(split_reply(&Tcp::connect(mount_addr).exchange(&create)).1, Outcome::ProgUnavail);
}

#[test]
fn server_without_udp_answers_and_lists_tcp_only() {
    let any = Some("127.0.0.1:0".parse().unwrap());
    let vfs = Arc::new(MemFs::new(1));
    let (serving, addr) = start(ServerOptions { mount_listen: any, portmap_listen: any, udp: false, ..options(vfs) });
    let ports = [addr, serving.mount_addr().unwrap(), serving.portmap_addr().unwrap()];
    for at in ports {
        // Nobody has the port.
        std::net::UdpSocket::bind(at).unwrap();
    }
    Tcp::connect(addr).mount("/");
    assert!(!serving.services().is_empty());
    assert!(serving.services().iter().all(|service| matches!(service.netid, Netid::Tcp | Netid::Tcp6)));
    let dump = portmap_message(xid(), &portmap::Call::Dump);
    let (_, _, mut results) = split_reply(&Tcp::connect(ports[2]).exchange(&dump));
    let Ok(portmap::Reply::Dump(list)) = portmap::Reply::decode(portmap::Call::Dump.proc(), &mut results) else {
        panic!("no list")
    };
    assert!(list.len() > 4 && list.iter().all(|mapping| mapping.prot == portmap::IPPROTO_TCP), "{list:?}");
}

#[test]
fn reader_over_udp_gets_all_when_addresses_are_validated() {
    let mut opts = options(Arc::new(MemFs::new(1)));
    opts.core.address_validation = true;
    let (serving, addr) = start(opts);
    // No TCP from here.
    let mut udp = Udp::connect(addr);
    let root = udp.mount("/");
    let fh = udp.create(&root, "f");
    // Data that it sends would be credit for as much.
    let size = SetAttrArgs { fh: fh.clone(), attr: SetAttr { size: Some(1 << 20), ..SetAttr::NONE }, guard: None };
    assert_eq!(udp.call(&Call::SetAttr(size)).status(), None);
    let mut lengths = Vec::new();
    while lengths.last().is_none_or(|length| *length < 32 << 10) {
        let offset = lengths.iter().sum::<usize>() as u64;
        let Reply::Read(Ok(ok)) = udp.call(&Call::Read(ReadArgs { fh: fh.clone(), offset, count: 32 << 10 })) else {
            panic!()
        };
        lengths.push(ok.data.len());
    }
    assert_eq!(lengths.len(), 4, "three short replies prove the address: {lengths:?}");
    assert_eq!(serving.stats().core.unvalidated_cut, 3);
}

#[test]
fn records_may_come_in_fragments_and_byte_by_byte() {
    let (_serving, addr) = start(options(Arc::new(MemFs::new(1))));
    let mut tcp = Tcp::connect(addr);
    let root = tcp.mount("/");
    let fh = tcp.create(&root, "f");
    for size in [1, 7, 64, 5000] {
        let data = Bytes::from(vec![size as u8; 40_000]);
        let call = write(&fh, data.clone());
        tcp.send_raw(&fragments(&nfs_message(xid(), &call), size));
        assert!(matches!(nfs_reply(&call, &tcp.receive()), Reply::Write(Ok(ok)) if ok.count == 40_000), "{size}");
        assert_eq!(tcp.read(&fh, 40_000), data);
    }
    let call = Call::GetAttr(root);
    for byte in fragments(&nfs_message(xid(), &call), 9) {
        tcp.send_raw(&[byte]);
        std::thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(nfs_reply(&call, &tcp.receive()).status(), None);
}

/// A program that begins with the same xid whenever it starts, as some do, and makes the same calls.
fn run_of_a_program(addr: std::net::SocketAddr, root: &Fh, name: &str) -> (Tcp, Option<Status>) {
    let mut tcp = Tcp::connect(addr);
    let mut exchange = |xid, call: &Call| {
        tcp.send_raw(&fragments(&nfs_message(xid, call), 1 << 20));
        nfs_reply(call, &tcp.receive())
    };
    exchange(10, &Call::GetAttr(root.clone()));
    let status = exchange(11, &create(root, name)).status();
    // Acknowledges the reply to CREATE: until then the server cannot know that it arrived.
    exchange(12, &Call::GetAttr(root.clone()));
    (tcp, status)
}

#[test]
fn programs_with_the_same_first_xids_are_kept_apart() {
    let (serving, addr) = start(options(Arc::new(MemFs::new(1))));
    let root = Tcp::connect(addr).mount("/");
    let winners = |end: bool, name: &str| {
        let mut open = Vec::new();
        let won = |_: &u32| {
            let (tcp, status) = run_of_a_program(addr, &root, name);
            if end {
                drop(tcp);
                // Those from before may still be there.
                wait_until(&serving, |s| s.connections == 0);
            } else {
                open.push(tcp);
            }
            status.is_none()
        };
        (0..4).filter(won).count()
    };
    assert_eq!(winners(false, "side by side"), 1);
    assert_eq!(winners(true, "one after the other"), 1);
    assert_eq!(serving.stats().core.cache.replays, 0);
}

/// The same for programs whose very first call is not idempotent, and that wait for each reply before they go on. Who
/// does not may have read none of the replies, though they were acknowledged: a tunnel's end did that, perhaps.
#[test]
fn first_call_is_new_if_the_last_run_went_on_after_its_reply() {
    let (serving, addr) = start(options(Arc::new(MemFs::new(1))));
    let root = Tcp::connect(addr).mount("/");
    let run = |name: &str, in_step: bool| {
        let mut tcp = Tcp::connect(addr);
        let (make, look) = (create(&root, name), Call::GetAttr(root.clone()));
        let messages = [(10, &make), (11, &look)].map(|(xid, call)| fragments(&nfs_message(xid, call), 1 << 20));
        let replies = if in_step {
            messages.map(|message| {
                tcp.send_raw(&message);
                tcp.receive()
            })
        } else {
            tcp.send_raw(&messages.concat());
            messages.map(|_| tcp.receive())
        };
        let before = serving.stats().connections;
        drop(tcp);
        wait_until(&serving, |s| s.connections < before);
        let made = replies.into_iter().find(|reply| split_reply(reply).0 == 10).unwrap();
        nfs_reply(&make, &made).status()
    };
    assert_eq!([0; 3].map(|_| run("in step", true)), [None, Some(Status::Exist), Some(Status::Exist)]);
    assert_eq!(serving.stats().core.cache.replays, 0);
    assert_eq!([0; 2].map(|_| run("pipelined", false)), [None, None]);
    assert_eq!(serving.stats().core.cache.replays, 1);
}

#[test]
fn retransmission_on_a_new_connection_gets_the_first_reply() {
    let (serving, addr) = start(options(Arc::new(MemFs::new(1))));
    let root = Tcp::connect(addr).mount("/");
    for (n, ends) in [true, false].into_iter().enumerate() {
        let call = create(&root, &format!("f{n}"));
        let mut old = Tcp::connect(addr);
        old.call(&Call::GetAttr(root.clone()));
        let message = fragments(&nfs_message(xid(), &call), 1 << 20);
        old.send_raw(&message);
        let first = old.receive();
        let before = serving.stats().connections;
        let old = (!ends).then_some(old);
        wait_until(&serving, |s| !ends || s.connections < before);
        let mut new = Tcp::connect(addr);
        new.send_raw(&message);
        assert_eq!(new.receive(), first);
        drop(old);
    }
    assert_eq!(serving.stats().core.cache.from_new_port, 2);
}

/// What keeps the requests behind it waiting on its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Behind {
    /// It takes long, and there is no room for others beside it.
    Slow,
    /// It waits for room to be received.
    Large,
}

#[test]
fn call_of_a_broken_connection_is_not_executed_after_its_retry() {
    for behind in [Behind::Slow, Behind::Large] {
        let slow = Arc::new(MemFs::new(1));
        slow.set_fault(|kind| {
            if kind == OpKind::Create {
                std::thread::sleep(Duration::from_secs(3));
            }
            None
        });
        let mut opts = sharing(vec![("/slow", slow), ("/", Arc::new(MemFs::new(2)))]);
        match behind {
            Behind::Slow => opts.limits.connection_bytes_max = 1,
            Behind::Large => opts.limits.receive_bytes_max = 64 << 10,
        }
        let (serving, addr) = start(opts);
        let [mut old, mut new, mut other] = [(); 3].map(|()| Tcp::connect(addr));
        let [slow, root] = ["/slow", "/"].map(|path| old.mount(path));
        let file = old.create(&root, "large");
        old.create(&root, "f");
        for tcp in [&mut new, &mut other] {
            tcp.mount("/");
        }

        let message = |call: &Call| nfs_message(xid(), call);
        let remove = message(&Call::Remove(at(&root, "f")));
        let first = match behind {
            Behind::Slow => message(&create(&slow, "d")),
            Behind::Large => message(&write(&file, vec![1; 20 << 10].into())),
        };
        let a_moment = Duration::from_millis(50);
        if behind == Behind::Large {
            // Takes all the room there is.
            other.send_raw(&mark(1 << 20));
            std::thread::sleep(a_moment);
        }
        old.send_raw(&[&first, &remove].map(|message| fragments(message, 1 << 20)).concat());
        std::thread::sleep(a_moment);
        rustix::net::sockopt::set_socket_linger(&old.stream, Some(Duration::ZERO)).unwrap();
        drop(old);

        if behind == Behind::Slow {
            // Its answer goes here, and nothing on the old connection shows that that broke.
            other.send(&first);
            wait_until(&serving, |s| s.core.cache.in_progress_parked == 1);
        }
        let removed = nfs_reply(&Call::Remove(at(&root, "f")), &new.exchange(&remove));
        assert_eq!(removed.status(), None, "{behind:?}");
        new.create(&root, "f");
        if behind == Behind::Slow {
            other.receive();
        }
        drop(other);
        wait_until(&serving, |s| s.connections == 1 && s.under_way == 0);
        assert_eq!(new.call(&Call::Lookup(at(&root, "f"))).status(), None, "{behind:?}");
    }
}

#[test]
fn pipelined_requests_are_all_answered_once() {
    let (serving, addr) = start(options(Arc::new(MemFs::new(1))));
    let mut tcp = Tcp::connect(addr);
    let root = tcp.mount("/");
    let mut sent = BTreeSet::new();
    let mut batch = Vec::new();
    for _ in 0..64 {
        let id = xid();
        sent.insert(id);
        batch.extend(fragments(&nfs_message(id, &Call::GetAttr(root.clone())), 1 << 20));
    }
    tcp.send_raw(&batch);
    let answered: BTreeSet<u32> = (0..64).map(|_| split_reply(&tcp.receive()).0).collect();
    assert_eq!(answered, sent);
    wait_until(&serving, |s| s.under_way == 0);
}

/// More than the core takes at once, from several connections of one address: streams are
/// held back, so nobody is turned away.
#[test]
fn busy_server_delays_streams_and_refuses_none() {
    let fs = Arc::new(MemFs::new(1));
    let mut opts = options(fs.clone());
    (opts.core.limits.in_flight_max, opts.core.limits.in_flight_per_client_max) = (6, 4);
    opts.core.limits.in_flight_bytes_max = 100 << 10;
    let (serving, addr) = start(opts);
    let mut wires: Vec<Tcp> = (0..5).map(|_| Tcp::connect(addr)).collect();
    let root = wires[0].mount("/");
    let fh = wires[0].create(&root, "f");
    wires[0].write(&fh, &Bytes::from(vec![1; 64 << 10]));
    fs.set_fault(|_| {
        std::thread::sleep(Duration::from_micros(200));
        None
    });
    for wire in &mut wires {
        (0..40).for_each(|_| wire.send(&nfs_message(xid(), &read(&fh, 64 << 10))));
    }
    for wire in &mut wires {
        for _ in 0..40 {
            let reply = nfs_reply(&read(&fh, 0), &wire.receive());
            assert!(matches!(reply, Reply::Read(Ok(ok)) if ok.count == 64 << 10));
        }
    }
    let stats = serving.stats();
    assert_eq!((stats.core.overload_deferred, stats.core.overload_dropped), (0, 0));
}

#[test]
fn duplicate_datagram_gets_the_cached_reply() {
    let dir = TempDir::new();
    let (serving, addr) = start(options(dir.disk()));
    let mut udp = Udp::connect(addr);
    let root = udp.mount("/");
    let message = nfs_message(xid(), &create(&root, "once"));
    let first = udp.exchange(&message);
    assert_eq!(nfs_reply(&create(&root, "once"), &first).status(), None);
    let executed = serving.stats().core.executed;
    for _ in 0..3 {
        assert_eq!(udp.exchange(&message), first);
    }
    assert_eq!(serving.stats().core.executed, executed);
}

#[test]
fn handles_outlive_a_restart() {
    let dir = TempDir::new();
    let (serving, addr) = start(options(dir.disk()));
    let mut tcp = Tcp::connect(addr);
    let root = tcp.mount("/");
    let fh: Fh = tcp.create(&root, "kept");
    tcp.write(&fh, &"still here".into());
    assert_eq!(serving.shutdown().abandoned, 0);
    assert_eq!(tcp.try_receive(), None);

    // The same port at once: connections of the last run are no obstacle.
    let listen = vec![addr];
    let (_serving, addr) = start(remora_host::server::ServerOptions { listen, ..options(dir.disk()) });
    assert_eq!(Udp::connect(addr).read(&fh, 100), "still here");
    assert_eq!(Tcp::connect(addr).read(&fh, 100), "still here");
}

/// Sends `n` stable writes of a byte each in one go; their replies' statuses.
fn write_stably(tcp: &mut Tcp, fh: &Fh, n: u64) -> Vec<Option<Status>> {
    let write = |offset| WriteArgs { fh: fh.clone(), offset, count: 1, stable: Stable::FileSync, data: "x".into() };
    let calls: Vec<Call> = (0..n).map(|i| Call::Write(write(i))).collect();
    tcp.send_raw(&calls.iter().flat_map(|c| fragments(&nfs_message(xid(), c), 1 << 20)).collect::<Vec<u8>>());
    calls.iter().map(|c| nfs_reply(c, &tcp.receive()).status()).collect()
}

#[test]
fn stable_writes_during_a_flush_share_the_next() {
    let fs = Arc::new(MemFs::new(1));
    fs.defer();
    let flushes = Arc::new(AtomicUsize::new(0));
    let count = flushes.clone();
    fs.set_fault(move |kind| {
        if kind == OpKind::Flush {
            count.fetch_add(1, Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    });
    let (serving, addr) = start(options(fs.clone()));
    let mut tcp = Tcp::connect(addr);
    let root = tcp.mount("/");
    let fh = tcp.create(&root, "f");
    assert_eq!(write_stably(&mut tcp, &fh, 64), [None; 64]);
    let (id, _) = fs.lookup(&Cred { uid: 0, gid: 0, gids: vec![] }, &fs.root(), b"f").unwrap();
    assert_eq!(fs.read_durable(&id).unwrap().len(), 64);
    let flushes = flushes.load(Relaxed);
    assert!((1..=32).contains(&flushes), "{flushes} flushes for 64 writes");

    // A flush that fails is reported to all that it was for; then all is well again.
    fs.clear_fault();
    fs.fail_next(OpKind::Flush, Status::Io, 1);
    let statuses = write_stably(&mut tcp, &fh, 16);
    assert!(statuses.contains(&Some(Status::Io)), "{statuses:?}");
    assert_eq!(write_stably(&mut tcp, &fh, 16), [None; 16]);
    assert_eq!(serving.shutdown().abandoned, 0);
}

#[test]
fn retransmission_behind_a_null_call_is_not_executed_again() {
    let (serving, addr) = start(options(Arc::new(MemFs::new(1))));
    let root = Udp::connect(addr).mount("/");
    let before = serving.stats().core.executed;
    let [null, call] = [nfs_message(0, &Call::Null), nfs_message(77, &create(&root, "f"))];
    let [mut first, mut second] = [Tcp::connect(addr), Tcp::connect(addr)];
    first.exchange(&null);
    first.send(&call);
    wait_until(&serving, |s| s.core.executed == before + 1 && s.under_way == 0);
    second.exchange(&null);
    assert_eq!(nfs_reply(&create(&root, "f"), &second.exchange(&call)).status(), None);
    assert_eq!(serving.stats().core.executed, before + 1);
    assert_eq!(first.receive()[..4], call[..4]);
}
