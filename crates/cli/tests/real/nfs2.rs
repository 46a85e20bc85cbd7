//! NFSv2, MOUNT v1 and the portmapper, driven by programs of others: a C client on libnfs's
//! raw calls, `rpcinfo` and `rpcbind`.
//!
//! A trial whose programs or rights are missing is ignored and says why; with
//! `REMORA_REQUIRE_ALL=1` it fails instead.

#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::trials::{program, trial};
use common::{Daemon, Output, Place, Running, names};
use libtest_mimic::Arguments;

/// The C program that is the client.
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/nfs2_client.c");

fn main() {
    let arguments = Arguments::from_args();
    let trial = |name, programs, root, run| trial(name, programs, root, run, !arguments.list);
    // A path is looked for as it is.
    let libnfs = &["cc", "/usr/include/nfsc/libnfs-raw.h"][..];
    let rpcbind = &["unshare", "ip", "rpcbind", "rpcinfo"][..];
    let trials = vec![
        trial("libnfs_calls_every_procedure_over_udp", libnfs, false, libnfs_calls_every_procedure_over_udp),
        trial("obsolete_procedures_are_empty", &[], false, obsolete_procedures_are_empty),
        trial("handles_of_32_bytes_survive_a_restart", &[], false, handles_of_32_bytes_survive_a_restart),
        trial("rpcinfo_finds_the_portmapper", rpcbind, true, rpcinfo_finds_the_portmapper),
        trial(
            "rpcinfo_finds_everything_over_ipv4_and_ipv6",
            rpcbind,
            true,
            rpcinfo_finds_everything_over_ipv4_and_ipv6,
        ),
        trial("rpcbind_is_told_and_told_again", rpcbind, true, rpcbind_is_told_and_told_again),
        trial("rpcbind_is_told_of_ipv6", rpcbind, true, rpcbind_is_told_of_ipv6),
        trial("without_rpcbind_it_says_so", rpcbind, true, without_rpcbind_it_says_so),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn libnfs_calls_every_procedure_over_udp() {
    let p = Place::new();
    let client = p.here("client");
    let built = program("cc").args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(&client).args([CLIENT, "-lnfs"]).output();
    let built = built.unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let s = p.serve(&[]);
    let out = Command::new(&client).args(["127.0.0.1", &s.port().to_string(), "/srv"]).output().unwrap();
    let (told, error) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "after {told}: {error}");
    assert_eq!(told.split_whitespace().count(), 7 + 4 + 2 + 1 + 5 + 2 + 2, "{told}");

    // What it left, as the server's disk has it.
    assert_eq!(names(&p.srv("")), ["f", "l", "many", "pipe"]);
    assert_eq!(fs::read(p.srv("f")).unwrap(), b"left behind");
    assert_eq!(fs::read_link(p.srv("l")).unwrap(), Path::new("to/nowhere"));
    assert!(fs::symlink_metadata(p.srv("pipe")).unwrap().file_type().is_fifo());
    assert_eq!(names(&p.srv("many")).len(), 700);
}

/// Sends a call of these words and opaque bytes; returns what follows an accepted reply's
/// header.
fn ask(s: &Daemon, [prog, vers, proc]: [u32; 3], args: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // Call, RPC version 2; AUTH_SYS of root without a name and groups; no verifier.
    let words = [0x5eed, 0, 2, prog, vers, proc, 1, 20, 0, 0, 0, 0, 0, 0, 0];
    let message = [&words.map(u32::to_be_bytes).concat()[..], args].concat();
    socket.send_to(&message, s.addr).unwrap();
    let mut buffer = [0; 9000];
    let len = socket.recv(&mut buffer).unwrap();
    let accepted = [0x5eed_u32, 1, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    assert_eq!(buffer[..accepted.len()], accepted, "accepted with success");
    buffer[accepted.len()..len].to_vec()
}

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

fn obsolete_procedures_are_empty() {
    let p = Place::new();
    let s = p.serve(&[]);
    for proc in [3, 7] {
        assert_eq!(ask(&s, [NFS, 2, proc], &[]), b"", "procedure {proc}");
    }
}

/// A name as XDR has it.
fn name(name: &str) -> Vec<u8> {
    let mut out = (name.len() as u32).to_be_bytes().to_vec();
    out.extend(name.bytes());
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// The results of GETATTR without the time of the last read, which looking for a file sets.
fn but_atime(mut attributes: Vec<u8>) -> Vec<u8> {
    assert_eq!(attributes.len(), 4 * (1 + 17));
    attributes.drain(48..56);
    attributes
}

/// The deepest file's handle has lost a part of its hint; it is found all the same.
fn handles_of_32_bytes_survive_a_restart() {
    let p = Place::new();
    let s = p.serve(&[]);
    let depths: Vec<String> = (0..16).map(|i| format!("directory {i}")).collect();
    fs::create_dir_all(p.srv(&depths.join("/"))).unwrap();
    fs::write(p.srv(&depths.join("/")).join("deep"), "sixteen down").unwrap();
    let mounted = ask(&s, [MOUNT, 1, 1], &name("/srv"));
    assert_eq!((mounted.len(), &mounted[..4]), (36, &[0; 4][..]));
    let mut handles = vec![mounted[4..].to_vec()];
    for part in depths.iter().map(String::as_str).chain(["deep"]) {
        let found = ask(&s, [NFS, 2, 4], &[handles.last().unwrap(), &name(part)[..]].concat());
        assert_eq!(found[..4], [0; 4], "{part}");
        handles.push(found[4..36].to_vec());
    }
    let attributes = |s: &Daemon| handles.iter().map(|fh| but_atime(ask(s, [NFS, 2, 1], fh))).collect::<Vec<_>>();
    let before = attributes(&s);
    let port = s.port();
    s.kill();
    let s = p.serve_at(port, &[]);
    assert_eq!(attributes(&s), before);
    let read = ask(&s, [NFS, 2, 6], &[&handles.last().unwrap()[..], &[0; 4], &[0, 0, 32, 0], &[0; 4]].concat());
    assert!(read.ends_with(b"sixteen down") && read[..4] == [0; 4]);
    let mut forged = handles[1].clone();
    forged[31] ^= 1;
    assert_eq!(ask(&s, [NFS, 2, 1], &forged), 70u32.to_be_bytes());
}

/// What every script begins with: a network of its own, a /run of its own (rpcbind has its lock there), and `serve FILE ARGS...`, which starts
/// a server and returns when it answers; its process is then $server.
const PREFACE: &str = r#"
set -eu
ip link set lo up
mount -t tmpfs run /run
mkdir /run/rpcbind
serve() {
    # An earlier one of this name must not seem to be this one.
    ready=$1; rm -f "$ready"; shift
    "$REMORA" serve "$SRV" --listen "${LISTEN:-127.0.0.1:0}" --state "$STATE" --json "$@" > "$ready" &
    server=$!
    for i in $(seq 600); do
        [ -s "$ready" ] && return 0
        kill -0 $server || return 1
        sleep 0.05
    done
    return 1
}
wait_for_rpcbind() {
    rpcbind -f -w &
    for i in $(seq 600); do rpcinfo -p 127.0.0.1 > /dev/null 2>&1 && return 0; sleep 0.05; done
    return 1
}
"#;

/// Runs a script in network, mount and process namespaces that end with it.
fn scripted(p: &Place, script: &str) -> Output {
    let mut shell = program("unshare");
    shell.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c"]).arg(format!("{PREFACE}{script}"));
    shell.current_dir(p.here("")).env("REMORA", env!("CARGO_BIN_EXE_remora")).env("SRV", p.srv(""));
    shell.env("STATE", p.state().join("server")).env("PATH", path());
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(shell).finish()
}

/// With the directories where a user who is not root would not look.
fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// Lines of `rpcinfo -p` as "program version protocol port".
fn registered(text: &str) -> Vec<String> {
    let fields = |line: &str| line.split_whitespace().take(4).collect::<Vec<_>>().join(" ");
    text.lines().map(fields).filter(|l| l.starts_with("1000")).collect()
}

fn rpcinfo_finds_the_portmapper() {
    let p = Place::new();
    let script = r#"
serve ready --portmap
rpcinfo -p 127.0.0.1
for version in 2 3; do
    rpcinfo -u 127.0.0.1 100003 $version
    rpcinfo -t 127.0.0.1 100003 $version
done
rpcinfo -u 127.0.0.1 100005 1
rpcinfo -t 127.0.0.1 100005 3
cat ready
"#;
    let out = scripted(&p, script);
    assert_eq!(out.code, 0, "{out:?}");
    let list = registered(&out.stdout);
    let port = out.stdout.split("127.0.0.1:").nth(1).and_then(|s| s.split('"').next()).unwrap().to_owned();
    for (prog, vers, port) in
        [(100_000, 2, "111"), (NFS, 2, &port), (NFS, 3, &port), (MOUNT, 1, &port), (MOUNT, 3, &port)]
    {
        for prot in ["tcp", "udp"] {
            let line = format!("{prog} {vers} {prot} {port}");
            assert!(list.contains(&line), "no {line} in {list:?}");
        }
    }
    // The portmapper is there in two versions more.
    assert_eq!(list.len(), 14, "{list:?}");
    assert_eq!(out.stdout.matches("ready and waiting").count(), 6, "{}", out.stdout);
}

/// Lines of `rpcinfo`, which asks this machine's portmapper in version 4, or 3, as "program version transport address".
fn bound(text: &str) -> Vec<String> {
    registered(text).into_iter().filter(|line| !line.starts_with("100000 ")).collect()
}

fn rpcinfo_finds_everything_over_ipv4_and_ipv6() {
    let p = Place::new();
    let script = r#"
LISTEN=[::]:0 serve ready --portmap
for transport in udp tcp udp6 tcp6; do
    case $transport in *6) host=::1 ;; *) host=127.0.0.1 ;; esac
    for program in "100003 2" "100003 3" "100005 1" "100005 3" "100000 4"; do
        rpcinfo -T $transport $host $program
    done
done
rpcinfo -T tcp6 ::1 100003 4 && exit 9
rpcinfo 127.0.0.1
cat ready
kill $server; wait $server || true
# Clients over IPv4 are not told of what they cannot reach.
LISTEN=[::1]:0 serve ready --portmap
rpcinfo -T tcp6 ::1 100003 3
"#;
    let out = scripted(&p, script);
    assert_eq!(out.code, 0, "{out:?}");
    assert_eq!(out.stdout.matches("ready and waiting").count(), 4 * 5 + 1, "{}", out.stdout);
    let list = bound(&out.stdout);
    let universal = out.stdout.split("[::]:").nth(1).and_then(|s| s.split('"').next()).unwrap().parse::<u16>().unwrap();
    let [high, low] = universal.to_be_bytes();
    for (prog, vers) in [(NFS, 2), (NFS, 3), (MOUNT, 1), (MOUNT, 3)] {
        for (netid, any) in [("udp", "0.0.0.0"), ("tcp", "0.0.0.0"), ("udp6", "::"), ("tcp6", "::")] {
            let line = format!("{prog} {vers} {netid} {any}.{high}.{low}");
            assert!(list.contains(&line), "no {line} in {list:?}");
        }
    }
}

fn rpcbind_is_told_and_told_again() {
    let p = Place::new();
    let script = r#"
wait_for_rpcbind
serve first --rpcbind
echo "== first"; rpcinfo -p 127.0.0.1
rpcinfo -u 127.0.0.1 100003 2
kill -KILL $server; wait $server || true
echo "== killed"; rpcinfo -p 127.0.0.1
serve second --rpcbind
echo "== second"; rpcinfo -p 127.0.0.1
rpcinfo -t 127.0.0.1 100003 3
kill -TERM $server; wait $server || true
echo "== ended"; rpcinfo -p 127.0.0.1
cat first second
"#;
    let out = scripted(&p, script);
    assert_eq!(out.code, 0, "{out:?}");
    let parts: Vec<&str> = out.stdout.split("== ").collect();
    let ours = |part: &str| {
        let found: Vec<&str> = parts.iter().copied().filter(|s| s.starts_with(part)).collect();
        let [found] = found[..] else { panic!("{part}: {}", out.stdout) };
        registered(found).into_iter().filter(|l| !l.starts_with("100000 ")).collect::<Vec<_>>()
    };
    assert_eq!(ours("first").len(), 8);
    assert_eq!(ours("killed"), ours("first"), "nobody took it back");
    assert_eq!(ours("second").len(), 8);
    assert!(ours("second").iter().all(|l| !ours("first").contains(l)), "replaced");
    assert!(ours("ended").is_empty(), "taken back");
}

fn rpcbind_is_told_of_ipv6() {
    let p = Place::new();
    let script = r#"
wait_for_rpcbind
export LISTEN=[::]:0
serve first --rpcbind
echo "== first"; rpcinfo
for transport in udp tcp udp6 tcp6; do
    case $transport in *6) host=::1 ;; *) host=127.0.0.1 ;; esac
    rpcinfo -T $transport $host 100003 3
done
"$REMORA" serve "$SRV" --listen [::1]:0 --state "$STATE" --rpcbind && exit 9
kill -KILL $server; wait $server || true
serve second --rpcbind
echo "== second"; rpcinfo
rpcinfo -T tcp6 ::1 100003 3
kill -TERM $server; wait $server || true
echo "== ended"; rpcinfo
export LISTEN=[::1]:0
serve third --rpcbind
echo "== third"; rpcinfo
rpcinfo -T udp6 ::1 100005 3
"#;
    let out = scripted(&p, script);
    assert_eq!(out.code, 0, "{out:?}");
    assert_eq!(out.stdout.matches("ready and waiting").count(), 4 + 1 + 1, "{}", out.stdout);
    let parts: Vec<Vec<String>> = out.stdout.split("== ").skip(1).map(bound).collect();
    let [first, second, ended, third] = &parts[..] else { panic!("{}", out.stdout) };
    assert_eq!([first.len(), second.len()], [16; 2], "{}", out.stdout);
    assert!(second.iter().all(|line| !first.contains(line)), "replaced");
    assert!(ended.is_empty(), "taken back");
    assert!(third.len() == 8 && third.iter().all(|line| line.contains("6 ::1.")), "{third:?}");
    assert!(out.stderr.contains("another server"), "{}", out.stderr);
}

fn without_rpcbind_it_says_so() {
    let p = Place::new();
    let out = scripted(&p, r#""$REMORA" serve "$SRV" --listen 127.0.0.1:0 --state "$STATE" --rpcbind"#);
    out.expect(1, &["no rpcbind answers at 127.0.0.1:111", "--portmap"]);
    let taken = r#"
serve ready --portmap
"$REMORA" serve "$SRV" --listen 127.0.0.1:0 --state "$STATE" --portmap
"#;
    scripted(&p, taken).expect(1, &["127.0.0.1:111", "is taken by another server"]);
}
