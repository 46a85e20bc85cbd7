//! Listings of a file system whose names or, for NFSv2, cookies are too long.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use remora_server::{Config, Export, Exports, Server, cache};
use remora_vfs::Vfs;
use remora_wire::nfs2::{Call, Entry, Fh, ReadDirArgs, Reply, Status};
use remora_wire::nfs3::{self, CreateHow, Entries, SetAttr};

use crate::odd::{LONG, Odd};
use crate::v2;
use crate::world::{KEY, ROOT, World, tcp};

/// How far up cookies are moved: they are as large as ext4's.
const SHIFT: u32 = 40;

/// A fresh server, as after a restart, of `fs`.
fn restart(w: &mut World, fs: &Arc<Odd>) {
    let exports = Arc::new(Exports::new(vec![Export::new("/", fs.clone())], &KEY).unwrap());
    let config = Config::new(exports);
    w.server = Server::new(config, 1, w.now);
}

fn page(w: &mut World, dir: Fh, cookie: u32) -> std::result::Result<Entries<Entry>, Status> {
    match v2::call(w, &Call::ReadDir(ReadDirArgs { dir, cookie, count: 400 })) {
        Reply::ReadDir(res) => res,
        other => panic!("{other:?}"),
    }
}

fn rest(w: &mut World, dir: Fh, mut cookie: u32, restarting: Option<&Arc<Odd>>) -> Vec<Bytes> {
    let mut seen = Vec::new();
    loop {
        let page = page(w, dir, cookie).unwrap();
        cookie = page.list.last().map_or(cookie, |e| e.cookie);
        seen.extend(page.list.into_iter().map(|e| e.name));
        if page.eof {
            return seen;
        }
        if let Some(fs) = restarting {
            restart(w, fs);
        }
    }
}

#[test]
fn cookies_are_found_at_page_ends_inside_and_after_a_restart() {
    let (mut w, fs, root) = unlisted();
    let all = rest(&mut w, root, 0, None);
    assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 102);
    assert_eq!(rest(&mut w, root, 0, Some(&fs)), all, "a new server for every page");
    let first = page(&mut w, root, 0).unwrap();
    assert!(first.list.len() > 5 && !first.eof);
    for (i, entry) in first.list.iter().enumerate() {
        assert!(entry.cookie >> 31 == 1, "a hash");
        assert_eq!(rest(&mut w, root, entry.cookie, None), all[i + 1..], "from behind entry {i}");
    }
    assert_eq!(page(&mut w, root, 0xdead_beef), Err(Status::Io), "a cookie of nobody's");
}

/// A directory of 100 names, and a server that has not listed it.
fn unlisted() -> (World, Arc<Odd>, Fh) {
    let fs = Arc::new(Odd::new(SHIFT));
    for i in 0..100 {
        let attr = SetAttr { mode: Some(0o644), ..SetAttr::NONE };
        fs.create(&ROOT, &fs.root(), format!("name {i}").as_bytes(), &CreateHow::Guarded(attr)).unwrap();
    }
    let mut w = World::new(cache::Config::full());
    restart(&mut w, &fs);
    let root = v2::root(&mut w);
    (w, fs, root)
}

#[test]
fn search_for_a_cookie_is_made_once_for_a_repeated_call() {
    let (mut w, fs, root) = unlisted();
    let last = rest_of(&mut w, root);
    restart(&mut w, &fs);
    let listed = |w: &mut World| {
        let before = fs.listed.load(Relaxed);
        page(w, root, last).unwrap();
        fs.listed.load(Relaxed) - before
    };
    assert!(listed(&mut w) > 90);
    assert!(listed(&mut w) < 20, "remembered");
}

/// Each made-up cookie has the whole directory looked at.
#[test]
fn made_up_cookies_are_searched_for_within_a_budget() {
    let (mut w, fs, root) = unlisted();
    let ask = |w: &mut World, cookie: u32| {
        let (before, call) = (fs.listed.load(Relaxed), ReadDirArgs { dir: root, cookie, count: 400 });
        v2::send(w, cookie, &Call::ReadDir(call));
        w.run_all();
        (w.sent.drain(..).count(), fs.listed.load(Relaxed) - before)
    };
    let made_up = |n: u32| 1 << 31 | n;
    let searched = (0..5000).take_while(|n| ask(&mut w, made_up(*n)).1 > 0).count();
    assert!((1950..=2000).contains(&searched), "{searched} searches of 102 entries");
    assert_eq!(ask(&mut w, made_up(9000)), (0, 0), "a datagram is not answered, and comes again");
    assert_eq!(w.server.stats().overload_dropped, 2);
    // On a stream the client would wait for long.
    assert_eq!(
        v2::call_from(&mut w, tcp(1), 1, &Call::ReadDir(ReadDirArgs { dir: root, cookie: made_up(9), count: 400 })),
        Reply::ReadDir(Err(Status::Io))
    );
    w.wait(std::time::Duration::from_secs(1));
    assert!(ask(&mut w, made_up(9000)).1 > 0, "a second later");
}

/// The cookie before the last entry.
fn rest_of(w: &mut World, dir: Fh) -> u32 {
    let mut cookies = vec![0];
    loop {
        let page = page(w, dir, cookies[cookies.len() - 1]).unwrap();
        cookies.extend(page.list.iter().map(|e| e.cookie));
        if page.eof {
            return cookies[cookies.len() - 3];
        }
    }
}

/// The names, page by page, of `count` bytes.
fn all_v3(w: &mut World, dir: &nfs3::Fh, plus: bool, count: u32) -> Vec<Bytes> {
    let (mut seen, mut cookie) = (Vec::new(), 0);
    loop {
        let (dir, verf) = (dir.clone(), [0; 8]);
        let page: Vec<_>;
        let call = if plus {
            nfs3::Call::ReadDirPlus(nfs3::ReadDirPlusArgs { dir, cookie, verf, dir_count: count, max_count: count })
        } else {
            nfs3::Call::ReadDir(nfs3::ReadDirArgs { dir, cookie, verf, count })
        };
        let eof = match w.call_from(tcp(1), &call) {
            nfs3::Reply::ReadDir(Ok(ok)) => {
                page = ok.entries.list.into_iter().map(|e| (e.name, e.cookie)).collect();
                ok.entries.eof
            }
            nfs3::Reply::ReadDirPlus(Ok(ok)) => {
                page = ok.entries.list.into_iter().map(|e| (e.name, e.cookie)).collect();
                ok.entries.eof
            }
            other => panic!("{other:?}"),
        };
        cookie = page.last().map_or(cookie, |(_, cookie)| *cookie);
        seen.extend(page.into_iter().map(|(name, _)| name));
        if eof {
            return seen;
        }
    }
}

/// NFS's names have 255 bytes; Linux's client takes nothing of a page in which there is a longer one.
#[test]
fn overlong_name_is_left_out_and_its_neighbours_are_not() {
    let fs = Arc::new(Odd::new(3));
    let mut wanted = vec![Bytes::from("."), Bytes::from("..")];
    for i in 0..30 {
        // Alone, in a row, and at both ends.
        let name = if i % 3 == 0 || i > 26 { format!("{LONG}{i}") } else { format!("{i}{}", "x".repeat(250)) };
        fs.create(&ROOT, &fs.root(), name.as_bytes(), &CreateHow::Guarded(SetAttr::NONE)).unwrap();
        if !name.starts_with(LONG) {
            wanted.push(name.into());
        }
    }
    let mut w = World::new(cache::Config::full());
    restart(&mut w, &fs);
    let root = v2::root(&mut w);
    assert_eq!(rest(&mut w, root, 0, None), wanted);
    let root = w.root();
    for plus in [false, true] {
        for count in [700, 1500, 32_768] {
            assert_eq!(all_v3(&mut w, &root, plus, count), wanted, "plus: {plus}, {count} bytes");
        }
    }
}
