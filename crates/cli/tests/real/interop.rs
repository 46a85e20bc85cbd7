//! Other people's programs: libnfs's tools on `remora serve`, and `remora` on NFS-Ganesha.
//!
//! A trial whose programs or rights are missing is ignored and says why; with
//! `REMORA_REQUIRE_ALL=1` it fails instead.

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use common::ganesha::{self, Ganesha};
use common::trials::{program, trial};
use common::{Daemon, Place, Running, names, noise};
use libtest_mimic::Arguments;
use remora_host::atp::keys;

fn main() {
    let arguments = Arguments::from_args();
    let trial = |name, programs, root, run| trial(name, programs, root, run, !arguments.list);
    let libnfs = &["nfs-ls", "nfs-cat", "nfs-cp"][..];
    let ganesha = &ganesha::PROGRAMS[..];
    let trials = vec![
        trial("libnfs_copies_a_gibibyte_both_ways", libnfs, false, libnfs_copies_a_gibibyte_both_ways),
        trial("libnfs_lists_ten_thousand_entries", libnfs, false, libnfs_lists_ten_thousand_entries),
        trial("libnfs_finds_odd_names", libnfs, false, libnfs_finds_odd_names),
        trial("libnfs_and_remora_see_the_same", libnfs, false, libnfs_and_remora_see_the_same),
        trial("ganesha_over_tcp", ganesha, true, || on_ganesha("tcp")),
        trial("ganesha_over_udp", ganesha, true, || on_ganesha("udp")),
        trial("ganesha_behind_a_gateway", ganesha, true, ganesha_behind_a_gateway),
    ];
    // One after the other: each is to be judged by its own time.
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}

/// Runs one of libnfs's tools to its end; returns what it printed.
fn libnfs(name: &str, args: &[&str]) -> String {
    let mut command = program(name);
    command.args(args);
    let out = Running::start(common::piped(command)).finish();
    assert_eq!(out.code, 0, "{name} {args:?}: {}{}", out.stdout, out.stderr);
    out.stdout
}

/// A URL as libnfs wants it. libnfs 4.0 mounts the empty path for what lies in `/`, and then
/// stumbles over every other export; so the share goes by its last name.
fn libnfs_url(s: &common::Daemon, path: &str) -> String {
    format!("nfs://127.0.0.1/srv{path}?version=3&nfsport={0}&mountport={0}", s.port())
}

fn hash(path: &Path) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(fs::File::open(path).unwrap()).unwrap();
    hasher.finalize()
}

/// Writes a file of `len` bytes, most of them a hole, with noise where mistakes would show:
/// around both ends, the 32-bit limits and odd places between.
fn mostly_hole(path: &Path, len: u64) {
    let mut file = fs::File::create(path).unwrap();
    file.set_len(len).unwrap();
    let spots = [0, 1 << 20, (1 << 29) - 77, len / 3, len - 700_001];
    for (i, at) in spots.into_iter().enumerate() {
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&noise(700_001, i as u64 + 1)).unwrap();
    }
}

/// Whether two files are equal, the fast way.
fn equal(a: &Path, b: &Path) -> bool {
    let (mut a, mut b) = (fs::File::open(a).unwrap(), fs::File::open(b).unwrap());
    if a.metadata().unwrap().len() != b.metadata().unwrap().len() {
        return false;
    }
    let (mut x, mut y) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let n = a.read(&mut x).unwrap();
        b.read_exact(&mut y[..n]).unwrap();
        if x[..n] != y[..n] {
            return false;
        }
        if n == 0 {
            return true;
        }
    }
}

fn libnfs_copies_a_gibibyte_both_ways() {
    let p = Place::new();
    mostly_hole(&p.here("big"), 1 << 30);
    let s = p.serve(&[]);
    libnfs("nfs-cp", &[p.here("big").to_str().unwrap(), &libnfs_url(&s, "/big")]);
    assert!(equal(&p.here("big"), &p.srv("big")), "to the server");
    fs::remove_file(p.here("big")).unwrap();
    libnfs("nfs-cp", &[&libnfs_url(&s, "/big"), p.here("back").to_str().unwrap()]);
    assert!(equal(&p.here("back"), &p.srv("big")), "from the server");
    // What the hole's neighbours say was compared byte by byte; the whole must not be empty.
    assert_ne!(hash(&p.here("back")), blake3::hash(b""));
}

fn libnfs_lists_ten_thousand_entries() {
    let p = Place::new();
    let s = p.serve(&[]);
    fs::create_dir(p.srv("many")).unwrap();
    let want: BTreeSet<String> = (0..10_000).map(|i| format!("entry number {i} of very many")).collect();
    for name in &want {
        fs::write(p.srv("many").join(name), "").unwrap();
    }
    let text = libnfs("nfs-ls", &[&libnfs_url(&s, "/many")]);
    // mode, links, owner, group, size, name.
    let name = |line: &str| line.split_once("entry").map(|(_, rest)| format!("entry{}", rest.trim_end()));
    let got: Vec<String> = text.lines().filter_map(name).collect();
    assert_eq!(got.len(), want.len(), "each once");
    assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), want);
    let ours = p.ok(&["ls", &s.udp_url("/many")]);
    assert_eq!(ours.lines().map(str::to_owned).collect::<BTreeSet<_>>(), want);
}

fn libnfs_finds_odd_names() {
    let p = Place::new();
    let s = p.serve(&[]);
    fs::create_dir(p.srv("mit Zwischenraum ü")).unwrap();
    fs::write(p.srv("mit Zwischenraum ü/日本 語"), "found").unwrap();
    let url = libnfs_url(&s, "/mit Zwischenraum ü");
    assert!(libnfs("nfs-ls", &[&url]).contains("日本 語"));
    assert_eq!(libnfs("nfs-cat", &[&libnfs_url(&s, "/mit Zwischenraum ü/日本 語")]), "found");
    // And made by libnfs.
    fs::write(p.here("neu"), "new").unwrap();
    libnfs("nfs-cp", &[p.here("neu").to_str().unwrap(), &libnfs_url(&s, "/mit Zwischenraum ü/nëu 2")]);
    assert_eq!(fs::read(p.srv("mit Zwischenraum ü/nëu 2")).unwrap(), b"new");
    assert_eq!(p.ok(&["cat", &s.url("/mit%20Zwischenraum%20%C3%BC/n%C3%ABu%202")]), "new");
}

fn libnfs_and_remora_see_the_same() {
    let p = Place::new();
    let s = p.serve(&[]);
    fs::write(p.here("f"), noise(5_000_000, 4)).unwrap();
    p.ok(&["cp", "f", &s.url("/f")]);
    libnfs("nfs-cp", &[&libnfs_url(&s, "/f"), p.here("g").to_str().unwrap()]);
    assert!(equal(&p.here("f"), &p.here("g")));
}

fn on_ganesha(proto: &str) {
    let p = Place::new();
    let g = Ganesha::start(&p);
    let root = g.export.to_str().unwrap();
    // Once with its ports named and once found through the portmapper.
    let named = |path: &str| format!("nfs://127.0.0.1:2049{root}{path}?mountport=20048&proto={proto}");
    let found = |path: &str| format!("nfs://127.0.0.1{root}{path}?proto={proto}");
    fs::create_dir(p.here("t")).unwrap();
    for i in 0..20u64 {
        fs::write(p.here(&format!("t/file {i} ü")), noise(i as usize * 1111, i)).unwrap();
    }
    fs::write(p.here("f"), noise(5_000_001, 1)).unwrap();
    g.remora(&p, &["mkdir", &found("/a%20b")]);
    g.remora(&p, &["cp", "--verify", "f", &named("/a%20b/f")]);
    assert_eq!(hash(&g.export.join("a b/f")), hash(&p.here("f")), "up");
    g.remora(&p, &["cp", "--verify", &found("/a%20b/f"), "back"]);
    assert_eq!(hash(&p.here("back")), hash(&p.here("f")), "down");
    g.remora(&p, &["cp", "-r", "t", &found("/")]);
    g.remora(&p, &["cp", "-r", &named("/t"), "t2"]);
    assert_eq!(names(&p.here("t2")), names(&p.here("t")));
    for name in names(&p.here("t")) {
        assert!(equal(&p.here(&format!("t2/{name}")), &p.here(&format!("t/{name}"))), "{name}");
    }
    assert_eq!(g.remora(&p, &["ls", &named("/")]), "a b\nt\n");
    assert_eq!(g.remora(&p, &["ls", &format!("nfs://[::1]{root}/?proto={proto}")]), "a b\nt\n", "over IPv6");
    assert!(g.remora(&p, &["ls", "-l", &found("/t")]).contains("file 7 ü"));
    g.remora(&p, &["mv", &found("/a%20b/f"), &found("/t/g")]);
    g.remora(&p, &["rm", "-r", &found("/t")]);
    assert_eq!(names(&g.export), ["a b"]);
    assert_eq!(g.remora(&p, &["df", "--json", &found("/")]).lines().count(), 1);
}

fn ganesha_behind_a_gateway() {
    let p = Place::new();
    let g = Ganesha::start(&p);
    let key = |name: &str| {
        let file = p.state().join(name);
        let public = keys::load_or_create(&file).unwrap().public().to_string();
        (file.to_str().unwrap().to_owned(), public)
    };
    let (mobile, gateway) = (key("mobile.key"), key("gateway.key"));
    // The port of MOUNT is for the portmapper to say.
    let flags = ["gateway", "--listen", "127.0.0.1:4050", "--nfs", "127.0.0.1", "--json"];
    let keys = ["--allow", &mobile.1, "--key", &gateway.0];
    let running = Daemon::start(g.inside(env!("CARGO_BIN_EXE_remora"), &[&flags[..], &keys[..]].concat()));
    let root = g.export.to_str().unwrap();
    let at = running.addr;
    let url = |path: &str| format!("nfs://{at}{root}{path}?proto=atp&key={}&identity={}", gateway.1, mobile.0);
    fs::write(p.here("f"), noise(5_000_001, 1)).unwrap();
    g.remora(&p, &["mkdir", &url("/a")]);
    g.remora(&p, &["cp", "--verify", "f", &url("/a/f")]);
    assert_eq!(hash(&g.export.join("a/f")), hash(&p.here("f")), "up");
    g.remora(&p, &["cp", "--verify", &url("/a/f"), "back"]);
    assert_eq!(hash(&p.here("back")), hash(&p.here("f")), "down");
    g.remora(&p, &["mv", &url("/a/f"), &url("/g")]);
    assert_eq!(g.remora(&p, &["ls", &url("/")]), "a\ng\n");
    g.remora(&p, &["rm", "-r", &url("/a")]);
    assert_eq!(names(&g.export), ["g"]);
}
