//! DRC 89's Example 1 and its two variants, with the executor's order chosen by hand: what a
//! duplicate destroys without a cache that is asked first, and does not with one.

use std::time::Duration;

use remora_server::cache;
use remora_wire::nfs3::{Call, Fh, Reply};

use crate::world::{World, at, create, set_size, udp, write};

const DATA: &[u8] = b"the write that must not be lost";

/// Each cache, and whether it prevents the loss.
fn caches() -> [(cache::Config, bool); 4] {
    [
        (cache::Config::Off, false),
        (cache::Config::reference(), false),
        (cache::Config::juszczak(), true),
        (cache::Config::full(), true),
    ]
}

/// `first` has been executed; its duplicate arrives and, if it gets as far, is held back on
/// its executor while `second` is executed; then it goes on.
fn race(w: &mut World, first: &Call, second: &Call, safe: bool) {
    w.send(udp(), 1, first);
    let late = w.jobs.pop_front();
    w.send(udp(), 2, second);
    w.run_all();
    assert_eq!(late.is_none(), safe, "whether the duplicate is kept from being executed");
    late.into_iter().for_each(|e| w.run(e));
}

/// Executes `call` under xid 1.
fn first(w: &mut World, call: &Call) {
    w.send(udp(), 1, call);
    w.run_all();
}

fn lookup(w: &mut World, root: &Fh, name: &str) -> Fh {
    w.sent.clear();
    match w.call(&Call::Lookup(at(root, name))) {
        Reply::Lookup(Ok(ok)) => ok.fh,
        other => panic!("{other:?}"),
    }
}

/// A file with something in it.
fn filled(cache: cache::Config) -> (World, Fh) {
    let mut w = World::new(cache);
    let root = w.root();
    let f = w.file(&root, "f");
    w.call(&write(&f, 0, b"old"));
    w.wait(Duration::from_secs(60));
    (w, f)
}

#[test]
fn late_duplicate_create_loses_the_write() {
    for (cache, safe) in caches() {
        let mut w = World::new(cache);
        let root = w.root();
        let create = create(&root, "f");
        first(&mut w, &create);
        let f = lookup(&mut w, &root, "f");
        race(&mut w, &create, &write(&f, 0, DATA), safe);
        assert_eq!(w.content("f") == DATA, safe, "{cache:?}: {:?}", w.content("f"));
    }
}

#[test]
fn late_duplicate_truncation_loses_the_write() {
    for (cache, safe) in caches() {
        let (mut w, f) = filled(cache);
        let cut = set_size(&f, 0);
        first(&mut w, &cut);
        race(&mut w, &cut, &write(&f, 0, DATA), safe);
        assert_eq!(w.content("f") == DATA, safe, "{cache:?}");
    }
}

#[test]
fn late_duplicate_write_fills_the_truncated_file_with_zeros() {
    for (cache, safe) in caches() {
        let (mut w, f) = filled(cache);
        let write = write(&f, 8192, DATA);
        first(&mut w, &write);
        race(&mut w, &write, &set_size(&f, 0), safe);
        assert_eq!(w.content("f").is_empty(), safe, "{cache:?}");
    }
}

/// What Juszczak's cache cannot do: behind the throwaway window a change of the file makes it
/// take a duplicate for a new request. Keeping the reply does not depend on time.
#[test]
fn only_the_full_cache_catches_a_duplicate_after_the_window() {
    for (cache, safe) in [(cache::Config::juszczak(), false), (cache::Config::full(), true)] {
        let (mut w, f) = filled(cache);
        let cut = set_size(&f, 0);
        first(&mut w, &cut);
        w.wait(Duration::from_secs(1));
        w.send(udp(), 2, &write(&f, 0, DATA));
        w.run_all();
        w.wait(Duration::from_secs(7));
        first(&mut w, &cut);
        assert_eq!(w.content("f") == DATA, safe, "{cache:?}");
    }
}
