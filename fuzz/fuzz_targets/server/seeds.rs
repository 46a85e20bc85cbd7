//! Seeds: inputs in which a client does what clients do, which a fuzzer is long in finding. They are
//! written where the environment says, before libFuzzer looks there; `cargo xtask fuzz` has them so.

use std::path::PathBuf;

use remora_wire::nfs2::Proc as P2;
use remora_wire::nfs3::Proc as P3;

use crate::{AGAIN, ANEW, HOLD, VERSION_2};

/// The directory for the seeds.
const DIR: &str = "REMORA_FUZZ_SEEDS";

/// Calls, as [`command`](crate::command) reads them: a handle and bytes, a name first, what LINK and RENAME take.
const BYTES: u8 = 0;
const NAME: u8 = 2;
const LINK: u8 = 6;
const RENAME: u8 = 7;
/// As [`NAME`], of a program that starts anew.
const NAME_ANEW: u8 = 7 * 20 + NAME;
const _: () = assert!(NAME_ANEW & ANEW != 0);
/// Other commands: the end of a job, a connection that breaks, whether all has arrived.
const FINISH: u8 = 9;
const BREAK: u8 = 10;
const ARRIVED: u8 = 13;

/// The root, and the first handles that are learned.
const ROOT: u8 = 0;
const FILE: u8 = 3;
const DIRECTORY: u8 = 4;
const SYMLINK: u8 = 5;
const FILE_V2: u8 = 1;
const DIRECTORY_V2: u8 = 2;

/// Names "a", "b" and "c".
const A: [u8; 2] = [0, 0];
const B: [u8; 2] = [1, 0];
const C: [u8; 2] = [2, 0];

/// Client on a stream, and on datagrams.
const STREAM: u8 = 2;
const DATAGRAM: u8 = 1;

/// Forms of the cache.
const FORMS: u8 = 6;

/// Writes all seeds, if somebody wants them.
pub(crate) fn write() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    for form in 0..FORMS {
        let scripts = [("v3", v3(false)), ("v3-held", v3(true)), ("v2", v2()), ("repeated", repeated())];
        for (name, Script { bytes, .. }) in scripts {
            let seed = [&[form][..], &bytes].concat();
            std::fs::write(dir.join(format!("{name}-{form}")), seed).expect("a directory that can be written in");
        }
    }
}

/// The commands of one client.
struct Script {
    bytes: Vec<u8>,
    peer: u8,
    /// Jobs do not end at once, but after their call.
    held: bool,
}

impl Script {
    fn new(peer: u8, held: bool) -> Script {
        Script { bytes: Vec::new(), peer, held }
    }

    fn command(&mut self, op: u8, what: u8, handle: u8, bytes: &[u8]) {
        self.bytes.extend_from_slice(&[op, what, self.peer | handle << 3, bytes.len() as u8]);
        self.bytes.extend_from_slice(bytes);
    }

    /// A call, and the end of its job.
    fn call(&mut self, op: u8, what: u8, handle: u8, parts: &[&[u8]]) {
        self.command(op, if self.held { what | HOLD } else { what }, handle, &parts.concat());
        if self.held {
            self.command(FINISH, 0, 0, &[]);
        }
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Creates, writes, reads and truncates a file; makes a directory, a hard link and a symbolic link; lists and removes
/// all of them.
fn v3(held: bool) -> Script {
    let mut s = Script::new(STREAM, held);
    s.call(NAME, P3::Create as u8, ROOT, &[&A]);
    // Offset (two words), count, how stable, length.
    s.call(BYTES, P3::Write as u8, FILE, &[&words(&[0, 0, 5, 2, 5]), b"hello\0\0\0"]);
    s.call(BYTES, P3::Write as u8, FILE, &[&words(&[0, 5, 5, 0, 5]), b"hello\0\0\0"]);
    s.call(BYTES, P3::Write as u8 | AGAIN, FILE, &[&words(&[0, 5, 5, 0, 5]), b"hello\0\0\0"]);
    s.call(BYTES, P3::Commit as u8, FILE, &[]);
    s.call(BYTES, P3::Read as u8, FILE, &[&words(&[0, 0, 100])]);
    // No mode, user and group; the size is 3.
    s.call(BYTES, P3::SetAttr as u8, FILE, &[&words(&[0, 0, 0, 1, 0, 3])]);
    s.call(NAME, P3::MkDir as u8, ROOT, &[&B, &words(&[1, 0o755])]);
    s.call(LINK, P3::Link as u8, FILE, &[&[DIRECTORY, 2]]);
    s.call(RENAME, P3::Rename as u8, ROOT, &[&[0, DIRECTORY]]);
    s.call(NAME, P3::SymLink as u8, ROOT, &[&C, &words(&[0, 0, 0, 0, 0, 0, 4]), b"path"]);
    s.call(BYTES, P3::ReadLink as u8, SYMLINK, &[]);
    s.call(BYTES, P3::ReadDirPlus as u8, ROOT, &[&words(&[0, 0, 0, 0, 512, 1024])]);
    s.call(BYTES, P3::ReadDir as u8, ROOT, &[&words(&[0, 0, 0, 0, 512])]);
    s.call(NAME, P3::Remove as u8, ROOT, &[&C]);
    s.call(NAME, P3::RmDir as u8, ROOT, &[&B]);
    s
}

/// The same as far as NFSv2 has it.
fn v2() -> Script {
    let mode = words(&[0o644, u32::MAX, u32::MAX, u32::MAX, u32::MAX, u32::MAX, u32::MAX, u32::MAX]);
    let mut s = Script::new(DATAGRAM, false);
    let mut call = |op, proc: P2, handle, parts: &[&[u8]]| s.call(op, proc as u8 | VERSION_2, handle, parts);
    call(NAME, P2::Create, ROOT, &[&A, &mode]);
    call(BYTES, P2::Write, FILE_V2, &[&words(&[0, 0, 5, 5]), b"hello\0\0\0"]);
    call(BYTES, P2::Read, FILE_V2, &[&words(&[0, 100, 0])]);
    call(NAME, P2::MkDir, ROOT, &[&B, &mode]);
    call(LINK, P2::Link, FILE_V2, &[&[DIRECTORY_V2, 2]]);
    call(RENAME, P2::Rename, ROOT, &[&[0, DIRECTORY_V2]]);
    call(BYTES, P2::ReadDir, ROOT, &[&words(&[0, 512])]);
    call(NAME, P2::Remove, ROOT, &[&B]);
    s
}

/// A call is repeated while its job goes on, on the same connection and on others, and after its end; then by a
/// program that uses the numbers of the one before it.
fn repeated() -> Script {
    const CREATE: u8 = P3::Create as u8;
    const AT_ONCE: u8 = 0;
    const GOOD_END: u8 = 1;
    const UNKNOWN: u8 = 2;
    let mut s = Script::new(STREAM, false);
    s.command(NAME, CREATE | HOLD, ROOT, &A);
    s.command(NAME, CREATE | HOLD | AGAIN, ROOT, &A);
    s.command(BREAK, AT_ONCE, 0, &[]);
    s.command(NAME, CREATE | HOLD | AGAIN, ROOT, &A);
    s.command(FINISH, 0, 0, &[]);
    s.command(NAME, CREATE | AGAIN, ROOT, &A);
    s.command(BREAK, GOOD_END, 0, &[]);
    s.command(NAME_ANEW, CREATE | AGAIN, ROOT, &A);
    s.command(ARRIVED, 0, 0, &[]);
    s.command(BREAK, UNKNOWN, 0, &[]);
    s.command(NAME_ANEW, CREATE | AGAIN, ROOT, &A);
    s
}
