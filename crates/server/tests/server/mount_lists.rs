//! MOUNT's two lists: which clients get them, and how much of them.

use std::sync::Arc;

use remora_base::{Peer, Time};
use remora_server::{Access, Config, Export, Exports, Limits, Rule, Server, Terms, cache};
use remora_vfs::{MemFs, Vfs};
use remora_wire::mount::{self, Call, Reply};
use remora_wire::nfs3::{self, MkDirArgs, SetAttr};
use remora_wire::rpc::Outcome;

use crate::world::{KEY, World, at, tcp, udp};

/// Header of a reply, the list's end and the bytes of a list by datagram: all an address that may be
/// forged gets for a question of some 80 bytes.
const BY_DATAGRAM_MAX: usize = 28 + 1024;

fn peers(addr: &str) -> [Peer; 2] {
    let addr = addr.parse().unwrap();
    [Peer::datagram(addr), Peer::stream(addr, 7)]
}

fn dump(w: &mut World, from: Peer) -> Vec<(String, String)> {
    let Reply::Dump(list) = w.mount(from, &Call::Dump) else { panic!() };
    let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
    list.iter().map(|m| (text(&m.host), text(&m.dir))).collect()
}

fn exports(w: &mut World, from: Peer) -> Vec<mount::Export> {
    let Reply::Export(list) = w.mount(from, &Call::Export) else { panic!() };
    list
}

#[test]
fn mount_list_merges_spellings_of_a_path() {
    let mut w = World::with(cache::Config::full(), Limits::default(), |e| e.names = vec!["/share".into()]);
    let Reply::Mnt(Ok(root)) = w.mount(udp(), &Call::Mnt("/share".into())) else { panic!() };
    w.call(&nfs3::Call::MkDir(MkDirArgs { at: at(&root.fh, "d"), attr: SetAttr::NONE }));
    for n in 0..40 {
        for dir in ["", "/d"] {
            let path = format!("//share{}{dir}/", "/.".repeat(n));
            assert!(matches!(w.mount(udp(), &Call::Mnt(path.into())), Reply::Mnt(Ok(_))));
        }
    }
    let line = |dir: &str| ("10.0.0.1".to_owned(), dir.to_owned());
    assert_eq!(dump(&mut w, tcp(1)), [line("/share"), line("/share/d")]);
    w.mount(udp(), &Call::Umnt("share/./d".into()));
    w.mount(udp(), &Call::Umnt("/share/..".into()));
    assert_eq!(dump(&mut w, tcp(1)), [line("/share")]);
}

#[test]
fn overlong_path_does_not_break_the_mount_list() {
    let mut w = World::new(cache::Config::full());
    let mut dir = w.root();
    let names = [255, 255, 255, 200, 55].map(|len| "x".repeat(len));
    for name in &names {
        let reply = w.call(&nfs3::Call::MkDir(MkDirArgs { at: at(&dir, name), attr: SetAttr::NONE }));
        let nfs3::Reply::MkDir(Ok(made)) = reply else { panic!("{reply:?}") };
        dir = made.fh.unwrap();
    }
    let path = names.join("/");
    assert_eq!(path.len(), mount::PATH_MAX as usize);
    assert!(matches!(w.mount(udp(), &Call::Mnt(path.clone().into())), Reply::Mnt(Ok(_))));
    let lines: Vec<String> = dump(&mut w, tcp(1)).into_iter().map(|(_, dir)| dir).collect();
    assert_eq!(lines, ["/"]);
}

#[test]
fn entry_stays_until_no_server_of_a_split_exports_it() {
    let mut w = World::new(cache::Config::full());
    let fs: Arc<dyn Vfs> = w.fs.clone();
    let exports = |names: &[&str]| {
        Arc::new(Exports::new(names.iter().map(|name| Export::new(*name, fs.clone())).collect(), &KEY).unwrap())
    };
    // As the clients of one of them see it.
    let mut others = Server::split(Config::new(exports(&["/a", "/b", "/b/c"])), 1, Time::ZERO, 3);
    w.server = others.remove(0);
    let paths = ["/a", "/b", "/b/c"];
    for path in paths {
        assert!(matches!(w.mount(udp(), &Call::Mnt(path.into())), Reply::Mnt(Ok(_))));
    }
    let told = |w: &mut World| dump(w, tcp(1)).into_iter().map(|(_, path)| path).collect::<Vec<_>>();
    w.server.set_exports(exports(&["//b/"]));
    assert_eq!(told(&mut w), paths);
    others[0].set_exports(exports(&["//b/"]));
    assert_eq!(told(&mut w), paths, "the last one still serves it");
    others[1].set_exports(exports(&["//b/"]));
    assert_eq!(told(&mut w), ["/b", "/b/c"]);
    w.mount(udp(), &Call::UmntAll);
    assert_eq!(told(&mut w), [""; 0]);
}

#[test]
fn mount_dump_over_udp_is_local_only() {
    let mut w = World::new(cache::Config::full());
    w.root();
    assert_eq!(w.ask_mount(udp(), &Call::Dump).0, Outcome::ProcUnavail);
    assert_eq!(w.server.stats().bad_procedure, 1);
    let near = ["127.0.0.1:700", "[::1]:700", "[::ffff:127.0.0.1]:700"].map(peers).concat();
    for from in near.into_iter().chain([tcp(1)]) {
        assert_eq!(dump(&mut w, from).len(), 1, "{from:?}");
    }
}

#[test]
fn the_exports_told_by_datagram_are_few() {
    let mut w = World::new(cache::Config::full());
    let export = |n| Export::new(format!("/export-{n:03}"), Arc::new(MemFs::new(n)));
    let list: Vec<_> = (0..300).map(export).collect();
    w.server = Server::new(Config::new(Arc::new(Exports::new(list, &KEY).unwrap())), 1, Time::ZERO);
    let (outcome, results) = w.ask_mount(udp(), &Call::Export);
    let reply = 24 + results.remaining();
    assert_eq!(outcome, Outcome::Success);
    assert!((512..=BY_DATAGRAM_MAX).contains(&reply), "{reply} bytes");
    assert!(exports(&mut w, udp()).len() > 10);
    for from in peers("127.0.0.1:700").into_iter().chain([tcp(1)]) {
        assert_eq!(exports(&mut w, from).len(), 300, "{from:?}");
    }
}

#[test]
fn export_list_hides_exports_of_others() {
    let mut w = World::with(cache::Config::full(), Limits::default(), |e| {
        let secure = Terms { secure: true, ..Terms::default() };
        let rules = [("10.0.0.1", Terms::default()), ("10.0.1.0/24", secure)];
        let rule = |(clients, terms): (&str, _)| Rule { clients: clients.parse().unwrap(), terms };
        e.access = Access::new(rules.map(rule).to_vec()).unwrap();
    });
    w.root();
    // People ask from any port, also about exports that take requests from reserved ones alone.
    for (addr, told) in [
        ("192.0.2.1:700", 0),
        ("[::ffff:192.0.2.1]:700", 0),
        ("10.0.0.1:5000", 1),
        ("10.0.1.9:5000", 1),
        ("127.0.0.1:5000", 1),
    ] {
        let [datagram, stream] = peers(addr);
        for from in [datagram, stream] {
            assert_eq!(exports(&mut w, from).len(), told, "{from:?}");
        }
        assert_eq!(dump(&mut w, stream).len(), told, "{addr}");
    }
}
