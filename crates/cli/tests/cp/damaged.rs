//! Paths that damage data in ways that checksums miss, and sources that change during the comparison.

use std::collections::HashMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::between::{Fate, between};
use crate::common::copies::resumed;
use crate::common::{Place, names, noise};
use remora_wire::nfs3::Call;

const SIZE: usize = 2_000_000;
/// Longer datagrams carry a block of a file.
const BLOCK: usize = 4000;
/// A UDP path to `server` that damages one block of `every`, `times` times in all, until the test ends.
fn damaging_path(server: SocketAddr, every: u32, times: u32) -> SocketAddr {
    let near = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    let at = near.local_addr().unwrap();
    let seen = Arc::new(AtomicU32::new(0));
    let damage = move |datagram: &mut [u8]| {
        if datagram.len() > BLOCK {
            let nth = seen.fetch_add(1, Ordering::Relaxed);
            if nth.is_multiple_of(every) && nth / every < times {
                let at = datagram.len() - 9;
                // Different each time: damage that repeats cannot be found.
                datagram[at] = datagram[at].wrapping_add((nth % 251) as u8 + 1);
            }
        }
    };
    std::thread::spawn(move || {
        let (mut clients, mut buf) = (HashMap::new(), vec![0; 1 << 16]);
        while let Ok((len, from)) = near.recv_from(&mut buf) {
            let far = clients.entry(from).or_insert_with(|| {
                let far = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
                far.connect(server).unwrap();
                let (back, near, damage) = (far.clone(), near.clone(), damage.clone());
                std::thread::spawn(move || {
                    let mut buf = vec![0; 1 << 16];
                    while let Ok(len) = back.recv(&mut buf) {
                        damage(&mut buf[..len]);
                        let _ = near.send_to(&buf[..len], from);
                    }
                });
                far
            });
            damage(&mut buf[..len]);
            let _ = far.send(&buf[..len]);
        }
    });
    at
}

/// Which packets of a path are damaged.
#[derive(Clone, Copy)]
struct Damage {
    /// Every n-th packet.
    every: u32,
    /// At most this many packets.
    times: u32,
}

/// Uploads or downloads a file with these arguments over a damaging path.
fn copy(p: &Place, damage: Damage, args: &[&str], is_upload: bool) -> (crate::common::Output, Option<Vec<u8>>) {
    let s = p.serve(&[]);
    let url = format!("nfs://{}/f?proto=udp", damaging_path(s.addr, damage.every, damage.times));
    let (words, source, dest) =
        if is_upload { (["f", &url], p.here("f"), p.srv("f")) } else { ([&url[..], "f"], p.srv("f"), p.here("f")) };
    fs::write(source, noise(SIZE, 5)).unwrap();
    let out = p.run(&[&["cp", "--json", "--block", "8K"], args, &words[..]].concat());
    (out, fs::read(dest).ok())
}

#[test]
fn damaged_blocks_are_found_and_copied_again() {
    for is_upload in [false, true] {
        let (plain, verified) = (Place::new(), Place::new());
        let (out, copied) = copy(&plain, Damage { every: 20, times: 3 }, &[], is_upload);
        out.expect(0, &[]);
        assert!(copied.unwrap() != noise(SIZE, 5), "else this test shows nothing");

        let (out, copied) = copy(&verified, Damage { every: 20, times: 3 }, &["--verify"], is_upload);
        out.expect(0, &["the copy differs from its source", "copying"]);
        assert!(copied.unwrap() == noise(SIZE, 5));
        assert_eq!(resumed(&out.stdout), (SIZE, 0), "bytes count once");
        let times = [verified.here("f"), verified.srv("f")].map(|f| fs::metadata(f).unwrap().modified().unwrap());
        assert_eq!(times[0], times[1], "also when something was copied again");
    }
}

#[test]
fn blocks_damaged_every_time_fail_the_copy() {
    for is_upload in [false, true] {
        let p = Place::new();
        let (out, copied) = copy(&p, Damage { every: 1, times: u32::MAX }, &["--verify"], is_upload);
        out.expect(4, &["differs from its source", "was removed"]);
        let copies = names(&if is_upload { p.srv("") } else { p.here("") });
        assert_eq!((copied, copies), (None, vec![]));
    }
}

/// The whole source changes in the middle of the comparison. Mended, the copy would be half old and half new.
#[test]
fn source_that_changes_during_verify_fails_the_copy() {
    const BYTES: usize = 40_000_000;
    const MIDST: u64 = 16 << 20;
    for is_upload in [true, false] {
        let p = Place::new();
        let s = p.serve(&[]);
        let (source, copy) = if is_upload { (p.here("f"), p.srv("f")) } else { (p.srv("f"), p.here("f")) };
        fs::write(&source, noise(BYTES, 5)).unwrap();
        // A download reads from the start twice.
        let (mut starts, mut is_changed) = (u32::from(is_upload), false);
        let url = between(&s, usize::MAX, move |call| {
            if let Call::Read(read) = &call {
                starts += u32::from(read.offset == 0);
                if starts == 2 && read.offset >= MIDST && !is_changed {
                    is_changed = true;
                    let file = fs::File::options().write(true).open(&source).unwrap();
                    std::os::unix::fs::FileExt::write_all_at(&file, &noise(BYTES, 7), 0).unwrap();
                }
            }
            Fate::Pass(call)
        });
        let url = url.replace("/?", "/f?");
        let words = if is_upload { ["f", &url] } else { [&url, "f"] };
        let out = p.run(&[&["cp", "--json", "--verify"][..], &words].concat());
        assert!([1, 4].contains(&out.code), "{is_upload}: {out:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&out.stdout).unwrap()["verified"], 0, "{out:?}");
        assert!(!copy.exists(), "{is_upload}: what differs has no name");
    }
}
