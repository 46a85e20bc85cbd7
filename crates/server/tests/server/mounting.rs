//! MNT while something else happens: the file system is busy, other exports come into force.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use remora_server::{Config, Export, Exports, Server, cache};
use remora_vfs::Vfs;
use remora_wire::mount::{Call, Reply};
use remora_wire::nfs3::SetAttr;

use crate::odd::Odd;
use crate::world::{KEY, ROOT, World, tcp, udp};

fn exporting(name: &str, fs: Arc<dyn Vfs>) -> Arc<Exports> {
    Arc::new(Exports::new(vec![Export::new(name, fs)], &KEY).unwrap())
}

/// MOUNT has no JUKEBOX: a client without a reply asks again.
#[test]
fn a_mount_of_a_busy_file_system_is_met_with_silence() {
    let fs = Arc::new(Odd::new(0));
    fs.mkdir(&ROOT, &fs.root(), b"d", &SetAttr { mode: Some(0o755), ..SetAttr::NONE }).unwrap();
    let mut w = World::new(cache::Config::full());
    w.server = Server::new(Config::new(exporting("/", fs.clone())), 1, w.now);
    for from in [udp(), tcp(1)] {
        fs.busy_lookups.store(1, Relaxed);
        let dropped = w.server.stats().overload_dropped;
        w.send_mount(from, &Call::Mnt("/d".into()));
        w.run_all();
        let stats = w.server.stats();
        assert_eq!((w.sent.len(), stats.overload_dropped - dropped, stats.failed), (0, 1, 0));
        assert!(matches!(w.mount(from, &Call::Mnt("/d".into())), Reply::Mnt(Ok(_))));
    }
}

#[test]
fn mount_overtaken_by_new_exports_adds_only_exported_entries() {
    for (new, lines) in [("/b", 0), ("/a/", 1)] {
        let mut w = World::with(cache::Config::full(), Default::default(), |e| e.names = vec!["/a".into()]);
        w.send_mount(udp(), &Call::Mnt("/a".into()));
        let mnt = w.take_job();
        w.server.set_exports(exporting(new, w.fs.clone()));
        w.run(mnt);
        assert_eq!(w.sent.drain(..).count(), 1, "it is answered");
        let Reply::Dump(list) = w.mount(tcp(1), &Call::Dump) else { panic!() };
        assert_eq!(list.len(), lines, "{new}");
    }
}
