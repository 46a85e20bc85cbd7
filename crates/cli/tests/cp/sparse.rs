//! Uploads of files with holes.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::common::copies::{FAST, SIZE, SLOW, journals, resumed};
use crate::common::{Place, names, noise, until};
use serde_json::Value;
use skip::skipped;

const MIB: u64 = 1 << 20;
/// Length of the files.
const LEN: u64 = 16 * MIB;

/// A file of that length with noise in these places; `false` where it has no holes.
fn make(path: &Path, len: u64, data: &[(u64, usize)]) -> bool {
    let file = fs::File::create(path).unwrap();
    file.set_len(len).unwrap();
    data.iter().for_each(|(at, bytes)| file.write_all_at(&noise(*bytes, *at), *at).unwrap());
    file.sync_all().unwrap();
    allocated(path) < len
}

/// Bytes that it takes on the disk.
fn allocated(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

fn is_same(a: &Path, b: &Path) -> bool {
    fs::read(a).unwrap() == fs::read(b).unwrap()
}

#[test]
fn holes_are_not_sent_and_take_no_room_there() {
    let p = Place::new();
    if !make(&p.here("probe"), LEN, &[]) {
        return skipped("holes_are_not_sent_and_take_no_room_there", "the file system here has no holes");
    }
    let s = p.serve(&[]);
    for (name, data) in [
        ("hole", &[][..]),
        ("head", &[(0, 300_000)]),
        ("tail", &[(LEN - 5000, 5000)]),
        ("both", &[(0, 5000), (LEN / 2, 2_000_000), (LEN - 5000, 5000)]),
    ] {
        for args in [&["--json"][..], &["--json", "--verify"]] {
            make(&p.here(name), LEN, data);
            let report: Value =
                serde_json::from_str(&p.ok(&[&["cp"], args, &[name, &s.url(&format!("/{name}"))]].concat())).unwrap();
            let [sent, holes] = ["bytes", "hole_bytes"].map(|key| report[key].as_u64().unwrap());
            let written: u64 = data.iter().map(|(_, bytes)| *bytes as u64).sum();
            assert!(sent + holes == LEN && (written..written + MIB).contains(&sent), "{name}: {report}");
            assert!(is_same(&p.here(name), &p.srv(name)), "{name}");
            assert!(allocated(&p.srv(name)) < written + MIB, "{name}: {}", allocated(&p.srv(name)));
            fs::remove_file(p.srv(name)).unwrap();
        }
    }
}

/// A full file over a sparse one.
#[test]
fn sparse_copy_replaces_all_old_data() {
    let p = Place::new();
    make(&p.here("f"), LEN / 8, &[(MIB, 5000)]);
    fs::write(p.srv("f"), noise(LEN as usize / 4, 7)).unwrap();
    let s = p.serve(&[]);
    p.ok(&["cp", "f", &s.url("/f")]);
    assert!(is_same(&p.here("f"), &p.srv("f")));
}

#[test]
fn an_interrupted_upload_with_holes_goes_on() {
    let p = Place::new();
    if !make(&p.here("f"), LEN, &[(MIB, SIZE / 2), (LEN / 2, SIZE / 2)]) {
        return skipped("an_interrupted_upload_with_holes_goes_on", "the file system here has no holes");
    }
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, SLOW);
    let running = p.start(&["cp", "-q", "f", &relay.udp_url("/f")]);
    until("a journal", || !journals(&p).is_empty());
    running.signal("KILL");
    running.finish();
    let port = relay.port();
    relay.kill();
    let _relay = p.relay_at(port, &s, FAST);
    let out = p.ok(&["cp", "--json", "--resume", "f", &format!("nfs://127.0.0.1:{port}/f?proto=udp")]);
    let report: Value = serde_json::from_str(&out).unwrap();
    let ((sent, before), holes) = (resumed(&out), report["hole_bytes"].as_u64().unwrap());
    assert!(before > 0 && sent < SIZE && (sent + before) as u64 + holes == LEN, "{report}");
    assert!(is_same(&p.here("f"), &p.srv("f")));
    assert!(allocated(&p.srv("f")) < SIZE as u64 + 2 * MIB, "{}", allocated(&p.srv("f")));
    assert_eq!((names(&p.srv("")), p.left()), (vec!["f".to_owned()], vec![]));
}

/// Data written into a hole during the copy is noticed as any change.
#[test]
fn filled_hole_is_a_source_change() {
    let p = Place::new();
    make(&p.here("f"), LEN, &[(0, SIZE)]);
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, SLOW);
    let running = p.start(&["cp", "-q", "f", &relay.udp_url("/f")]);
    until("a journal", || !journals(&p).is_empty());
    let file = fs::File::options().write(true).open(p.here("f")).unwrap();
    file.write_all_at(b"new", LEN / 2).unwrap();
    running.finish().expect(1, &["changed during the copy"]);
    assert_eq!(fs::metadata(p.srv("f")).unwrap().len(), LEN);
}
