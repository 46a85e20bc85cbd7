//! MOUNT, and who may do what.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use remora_base::{Core, Peer, Time};
use remora_server::{ANONYMOUS, Access, Config, Export, Exports, Limits, Rule, Server, Squash, Terms, cache};
use remora_vfs::{MemFs, Vfs};
use remora_wire::mount::{self, MountError};
use remora_wire::nfs3::{Call, DirOp, MkDirArgs, Proc, RenameArgs, SetAttr, Status, SymLinkArgs};

use crate::world::{KEY, ROOT, World, at, create, decode, every_procedure, everybody, only, tcp, udp};

fn mnt(w: &mut World, from: Peer, path: impl Into<Bytes>) -> Result<mount::Mounted, MountError> {
    match w.mount(from, &mount::Call::Mnt(path.into())) {
        mount::Reply::Mnt(res) => res,
        other => panic!("{other:?}"),
    }
}

#[test]
fn mount_stays_inside_the_export() {
    let mut w = World::with(cache::Config::full(), Limits::default(), |e| e.names = vec!["/share".into()]);
    let root = mnt(&mut w, udp(), "/share").unwrap();
    assert_eq!(root.flavors, [1, 0]);
    w.call(&Call::MkDir(MkDirArgs { at: at(&root.fh, "d"), attr: SetAttr::NONE }));
    w.call(&create(&root.fh, "f"));
    w.call(&Call::SymLink(SymLinkArgs { at: at(&root.fh, "l"), attr: SetAttr::NONE, target: "d".into() }));
    for (path, want) in [
        ("/share/", None),
        ("/share/d", None),
        ("/share/d/", None),
        ("/share/f", Some(MountError::NotDir)),
        ("/share/f/x", Some(MountError::NotDir)),
        ("/share/l", Some(MountError::NotDir)),
        ("/share/none", Some(MountError::NoEnt)),
        ("/share/d/..", None),
        ("/share//d/../d/.", None),
        ("/share/d/../f", Some(MountError::NotDir)),
        ("/share/d/../../share", None),
        ("/share/..", Some(MountError::NoEnt)),
        ("/share/d/../..", Some(MountError::NoEnt)),
        ("/share/../etc", Some(MountError::NoEnt)),
        ("/", Some(MountError::NoEnt)),
        ("/shared", Some(MountError::NoEnt)),
        ("", Some(MountError::NoEnt)),
    ] {
        assert_eq!(mnt(&mut w, udp(), path).err(), want, "{path}");
    }
    // Names are bytes.
    let latin = MkDirArgs { at: DirOp { dir: root.fh, name: Bytes::from_static(b"\xfcber") }, attr: SetAttr::NONE };
    w.call(&Call::MkDir(latin));
    assert!(mnt(&mut w, udp(), &b"/share/\xfcber"[..]).is_ok());
    assert_eq!(mnt(&mut w, udp(), &b"/share/\xff"[..]).err(), Some(MountError::NoEnt));
}

#[test]
fn the_lists_of_exports_and_mounts() {
    let mut w = World::with(cache::Config::full(), Limits { mounts_max: 2, ..Limits::default() }, |e| {
        e.access = only(&["10.0.0.0/8", "*", "192.0.2.1"]);
        e.names.push("/alias".into());
        e.unlisted.push("/hidden".into());
    });
    let mount::Reply::Export(list) = w.mount(udp(), &mount::Call::Export) else { panic!() };
    assert_eq!(list.iter().map(|e| &e.dir[..]).collect::<Vec<_>>(), [b"/alias"], "one line an export");
    assert_eq!(list[0].groups, ["192.0.2.1", "10.0.0.0/8", "*"]);
    let dump = |w: &mut World| match w.mount(tcp(1), &mount::Call::Dump) {
        mount::Reply::Dump(list) => list.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(dump(&mut w), 0);
    assert!(mnt(&mut w, udp(), "/hidden").is_ok());
    w.mount(udp(), &mount::Call::Umnt("/hidden".into()));
    for path in ["/", "/alias", "/", "/none"] {
        let _ = mnt(&mut w, udp(), path);
    }
    assert_eq!(dump(&mut w), 2);
    w.mount(udp(), &mount::Call::Umnt("/".into()));
    assert_eq!(dump(&mut w), 1);
    w.mount(udp(), &mount::Call::UmntAll);
    assert_eq!(dump(&mut w), 0);
}

#[test]
fn addresses_are_checked_at_mount_and_at_every_call() {
    let mut w = World::with(cache::Config::full(), Limits::default(), |e| e.access = only(&["10.0.0.1"]));
    let root = w.root();
    let stranger = Peer::datagram("10.0.0.2:700".parse().unwrap());
    assert_eq!(mnt(&mut w, stranger, "/").err(), Some(MountError::Access));
    for call in every_procedure(&root) {
        assert_eq!(w.call_from(stranger, &call).status(), Some(Status::Access), "{call:?}");
    }
    assert_eq!(w.server.stats().denied, 22);
    assert_eq!(w.server.stats().cache.requests, 0, "strangers take no room in the cache");
    let mapped = Peer::datagram("[::ffff:10.0.0.1]:700".parse().unwrap());
    assert_eq!(w.call_from(mapped, &Call::GetAttr(root)).status(), None);
}

#[test]
fn exports_are_apart_from_each_other() {
    let (one, two) = (Arc::new(MemFs::new(1)), Arc::new(MemFs::new(1)));
    let private = Export { access: only(&["10.9.9.9"]), ..Export::new("/two", two) };
    let third = Export::new("/three", Arc::new(MemFs::new(3)));
    let exports = Arc::new(Exports::new(vec![Export::new("/one", one), private, third], &KEY).unwrap());
    let mut w = World::new(cache::Config::full());
    let config = Config::new(exports);
    w.server = Server::new(config, 1, Time::ZERO);
    let (one, three) = (mnt(&mut w, udp(), "/one").unwrap().fh, mnt(&mut w, udp(), "/three").unwrap().fh);
    assert_eq!(mnt(&mut w, udp(), "/two").err(), Some(MountError::Access));
    let owner = Peer::datagram("10.9.9.9:1".parse().unwrap());
    let two = mnt(&mut w, owner, "/two").unwrap().fh;
    assert_ne!(one, two, "the same id in another export");
    assert_eq!(w.call(&Call::GetAttr(two.clone())).status(), Some(Status::Access));
    w.call(&create(&one, "f"));
    let across = |to| Call::Rename(RenameArgs { from: at(&one, "f"), to: at(to, "f") });
    assert_eq!(w.call(&across(&three)).status(), Some(Status::XDev));
    assert_eq!(w.call(&across(&two)).status(), Some(Status::Access));
}

#[test]
fn root_is_squashed_unless_told_otherwise() {
    for (squash, owner) in [(Squash::None, 0), (Squash::Root, ANONYMOUS), (Squash::All, ANONYMOUS)] {
        let mut w =
            World::with(cache::Config::full(), Limits::default(), |e| e.access = everybody(|t| t.squash = squash));
        let root = w.root();
        w.call(&create(&root, "f"));
        let (_, attr) = w.fs.lookup(&ROOT, &w.fs.root(), b"f").unwrap();
        assert_eq!(attr.uid, owner, "{squash:?}");
    }
}

#[test]
fn handles_outlive_a_restart_with_the_same_key_only() {
    let mut w = World::new(cache::Config::full());
    let root = w.root();
    for (key, want) in [(KEY, None), ([1; 16], Some(Status::Stale))] {
        let exports = Arc::new(Exports::new(vec![Export::new("/", w.fs.clone())], &key).unwrap());
        let config = Config::new(exports);
        w.server = Server::new(config, 2, w.now);
        assert_eq!(w.call(&Call::GetAttr(root.clone())).status(), want);
    }
}

#[test]
fn room_is_bounded_for_each_client_and_given_back() {
    let limits = Limits { in_flight_max: 3, in_flight_per_client_max: 2, ..Limits::default() };
    let mut w = World::with(cache::Config::full(), limits, |_| {});
    let root = w.root();
    let (me, other): (IpAddr, IpAddr) = (udp().addr.ip(), "10.0.0.9".parse().unwrap());
    let get = Call::GetAttr(root.clone());
    (0..5).for_each(|xid| w.send(udp(), xid, &get));
    assert_eq!((w.server.in_flight(), w.jobs.len(), w.server.stats().overload_dropped), (2, 2, 3));
    assert!(!w.server.has_room(me) && w.server.has_room(other));
    w.send(Peer::stream("10.0.0.1:9".parse().unwrap(), 1), 9, &create(&root, "f"));
    let told = w.sent.pop().unwrap();
    let reply = crate::world::decode(remora_wire::nfs3::Proc::Create, 9, told.payload);
    assert_eq!((reply.status(), w.server.stats().overload_deferred), (Some(Status::Jukebox), 1));
    w.run_all();
    assert_eq!((w.server.in_flight(), w.sent.len()), (0, 2));
    assert!(w.server.has_room(me));
    assert_eq!(w.server.poll_timeout(), None);
    assert_eq!(w.server.memory(), mount_line());
}

/// What the line of the one mount takes.
fn mount_line() -> usize {
    let mut w = World::new(cache::Config::full());
    w.root();
    w.server.memory()
}

#[test]
fn each_client_has_its_own_terms() {
    let mut w = World::with(cache::Config::full(), Limits::default(), |e| {
        let rule = |clients: &str, terms| Rule { clients: clients.parse().unwrap(), terms };
        let terms = Terms { squash: Squash::None, ..Terms::default() };
        let rules = [
            rule("10.0.0.0/8", terms),
            rule("10.0.0.2", Terms { read_only: true, ..terms }),
            rule("10.0.0.3", Terms { squash: Squash::All, anon_uid: 7, anon_gid: 8, ..terms }),
            rule("10.0.0.4", Terms { secure: true, ..terms }),
        ];
        e.access = Access::new(rules.to_vec()).unwrap();
    });
    let root = w.root();
    let from = |addr: &str| Peer::datagram(addr.parse().unwrap());
    for (addr, want) in [
        ("10.0.0.1:5000", None),
        ("10.0.0.2:5000", Some(Status::RoFs)),
        ("10.0.0.3:5000", None),
        ("10.0.0.4:5000", Some(Status::Access)),
        ("10.0.0.4:1023", None),
        ("192.0.2.1:700", Some(Status::Access)),
    ] {
        assert_eq!(w.call_from(from(addr), &create(&root, addr)).status(), want, "{addr}");
        let mounts = mnt(&mut w, from(addr), "/").err();
        assert_eq!(mounts, want.filter(|s| *s == Status::Access).map(|_| MountError::Access), "{addr}");
    }
    let (_, attr) = w.fs.lookup(&ROOT, &w.fs.root(), b"10.0.0.3:5000").unwrap();
    assert_eq!((attr.uid, attr.gid), (7, 8));
    assert_eq!(w.server.stats().denied, 4);
}

#[test]
fn new_exports_apply_from_the_next_request_on() {
    let mut w = World::new(cache::Config::full());
    let other = Arc::new(MemFs::new(2));
    let serve = |w: &mut World, list: Vec<Export>| {
        w.server.set_exports(Arc::new(Exports::new(list, &KEY).unwrap()));
    };
    let kept = Export { access: everybody(|_| {}), ..Export::new("/one", w.fs.clone()) };
    let two = Export { access: everybody(|_| {}), ..Export::new("/two", other) };
    serve(&mut w, vec![kept.clone(), two]);
    let [root, gone] = ["/one", "/two"].map(|path| mnt(&mut w, udp(), path).unwrap().fh);
    w.send(udp(), 1, &create(&root, "under way"));
    w.send(udp(), 2, &create(&gone, "under way"));

    serve(&mut w, vec![Export { access: everybody(|t| t.read_only = true), ..kept.clone() }]);
    w.run_all();
    for reply in std::mem::take(&mut w.sent) {
        let xid = u32::from_be_bytes(*reply.payload.first_chunk().unwrap());
        assert_eq!(crate::world::decode(Proc::Create, xid, reply.payload).status(), None, "begun under the old");
    }
    assert_eq!(w.call(&Call::GetAttr(root.clone())).status(), None, "its handles stay good");
    assert_eq!(w.call(&create(&root, "later")).status(), Some(Status::RoFs));
    assert_eq!(w.call(&Call::GetAttr(gone)).status(), Some(Status::Stale));
    assert_eq!(mnt(&mut w, udp(), "/two").err(), Some(MountError::NoEnt));
    let mount::Reply::Dump(list) = w.mount(tcp(1), &mount::Call::Dump) else { panic!() };
    assert_eq!(list.iter().map(|m| &m.dir[..]).collect::<Vec<_>>(), [b"/one"]);

    serve(&mut w, vec![Export { access: only(&["192.0.2.1"]), ..kept }]);
    assert_eq!(w.call(&Call::GetAttr(root)).status(), Some(Status::Access));
}

#[test]
fn handles_survive_another_spelling_of_the_name() {
    let mut w = World::new(cache::Config::full());
    let exports = |name: &str| {
        let export = Export { access: everybody(|_| {}), ..Export::new(name, w.fs.clone()) };
        Arc::new(Exports::new(vec![export], &KEY).unwrap())
    };
    let spelt = ["/a", "/a/", "//a", "/./a"].map(exports);
    w.server.set_exports(spelt[0].clone());
    let root = mnt(&mut w, udp(), "/a").unwrap().fh;
    for exports in spelt {
        w.server.set_exports(exports.clone());
        assert_eq!(w.call(&Call::GetAttr(root.clone())).status(), None, "{exports:?}");
        assert_eq!(mnt(&mut w, udp(), "/a").unwrap().fh, root, "{exports:?}");
    }
}

/// The cache knows a client that comes back from another port.
#[test]
fn cached_reply_is_not_for_ports_the_export_refuses() {
    let secure = Export { access: everybody(|t| t.secure = true), ..Export::new("/secure", Arc::new(MemFs::new(1))) };
    let open = Export { access: everybody(|_| {}), ..Export::new("/open", Arc::new(MemFs::new(2))) };
    let exports = Arc::new(Exports::new(vec![secure, open], &KEY).unwrap());
    let from = |port, id| Peer::stream(([10, 0, 0, 1], port).into(), id);
    for (name, answered) in [("/secure", false), ("/open", true)] {
        let mut w = World::new(cache::Config::full());
        w.server = Server::new(Config::new(exports.clone()), 1, Time::ZERO);
        let root = mnt(&mut w, udp(), name).unwrap().fh;
        let call = create(&root, "f");
        w.send(from(700, 1), 5, &call);
        let job = w.take_job();
        w.send(from(2000, 2), 5, &call);
        w.run(job);
        w.send(from(2001, 3), 5, &call);
        assert!(w.jobs.is_empty(), "{name}");
        let statuses: Vec<_> = w.sent.drain(..).map(|t| (t.to, decode(Proc::Create, 5, t.payload).status())).collect();
        let refused = Some(Status::Access);
        let want = match answered {
            // The duplicate in progress has the reply of both.
            true => vec![(from(2000, 2), None), (from(2001, 3), None)],
            false => vec![(from(2000, 2), refused), (from(700, 1), None), (from(2001, 3), refused)],
        };
        assert_eq!(statuses, want, "{name}");
    }
}
