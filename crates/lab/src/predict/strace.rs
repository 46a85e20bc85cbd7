//! Traces from the output of `strace -f -ttt -y -Y`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use super::anonymous;
use super::strace_line::{StraceCall, StraceEvent, parse_call, parse_line, quoted, shown_path};
use super::trace::{Access, AccessKind, LINES_MAX, Trace, TracedFile};

/// Maximum bytes of a line.
const LINE_MAX: u64 = 1 << 20;
/// Interrupted calls that are remembered.
const UNFINISHED_MAX: usize = 10_000;
/// Directories whose files no file system has on a disk.
const VIRTUAL: [&str; 3] = ["/proc/", "/sys/", "/dev/"];

/// What was left out of a trace, or is doubtful.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct StraceDoubts {
    /// Lines that are not strace's.
    pub bad_lines: usize,
    /// Number of the first of them.
    pub first_bad_line: Option<usize>,
    /// Accesses to files whose size neither the trace nor the file system shows.
    pub unknown_sizes: usize,
}

#[derive(Debug)]
struct RawFile {
    path: String,
    /// Whether the first access, if it came before any stat(2), created it.
    is_created: bool,
    is_regular: bool,
    first_size: Option<u64>,
    size: Option<u64>,
    /// Accesses that get the size of the next stat(2).
    sizeless_reads: Vec<usize>,
    sizeless_write: Option<usize>,
    is_read: bool,
    is_accessed: bool,
}

#[derive(Clone, Copy, Debug)]
struct RawAccess {
    program: usize,
    at_ms: u64,
    kind: AccessKind,
    file: usize,
    size: Option<u64>,
}

/// Who calls, and when.
#[derive(Clone, Copy)]
struct Moment {
    pid: u32,
    program: usize,
    at_ms: u64,
}

/// Reads lines and makes a trace of them.
#[derive(Debug, Default)]
pub(super) struct StraceReader {
    /// Only files in this directory count.
    under: String,
    programs: Vec<String>,
    program_numbers: BTreeMap<String, usize>,
    files: Vec<RawFile>,
    file_numbers: BTreeMap<String, usize>,
    accesses: Vec<RawAccess>,
    unfinished: BTreeMap<u32, String>,
    working_directories: BTreeMap<u32, String>,
    doubts: StraceDoubts,
}

impl StraceReader {
    pub(super) fn new(under: &str) -> StraceReader {
        StraceReader { under: under.trim_end_matches('/').to_owned(), ..StraceReader::default() }
    }

    /// Reads all lines.
    pub(super) fn read(&mut self, mut input: impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if input.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            self.line(String::from_utf8_lossy(&line).trim_end(), number);
            if self.accesses.len().max(self.files.len()) > LINES_MAX {
                return Err(io::Error::other("the trace is too long"));
            }
        }
        Ok(())
    }

    fn line(&mut self, text: &str, number: usize) {
        let Some(line) = parse_line(text) else {
            self.doubts.bad_lines += 1;
            self.doubts.first_bad_line.get_or_insert(number);
            return;
        };
        let program = self.program(line.program.unwrap_or("unknown"));
        let moment = Moment { pid: line.pid, program, at_ms: line.at_ms };
        match line.event {
            StraceEvent::Call(call) => self.call(call, moment),
            StraceEvent::Unfinished(call) if self.unfinished.len() < UNFINISHED_MAX => {
                self.unfinished.insert(line.pid, call.to_owned());
            }
            StraceEvent::Resumed(rest) => {
                if let Some(call) = self.unfinished.remove(&line.pid) {
                    self.call(&(call + rest), moment);
                }
            }
            StraceEvent::Unfinished(_) | StraceEvent::Other => {}
        }
    }

    fn program(&mut self, name: &str) -> usize {
        if let Some(number) = self.program_numbers.get(name) {
            return *number;
        }
        self.programs.push(name.to_owned());
        self.program_numbers.insert(name.to_owned(), self.programs.len() - 1);
        self.programs.len() - 1
    }

    fn call(&mut self, text: &str, moment: Moment) {
        let Some(call) = parse_call(text).filter(|call| !call.result.starts_with('-')) else { return };
        let first = call.arguments.first().copied().unwrap_or_default();
        if let Some(directory) = first.strip_prefix("AT_FDCWD").and_then(shown_path) {
            self.working_directories.insert(moment.pid, directory.into_owned());
        }
        match call.name {
            "open" => self.open(call.arguments.get(1), &call, moment),
            "openat" | "openat2" => self.open(call.arguments.get(2), &call, moment),
            "creat" => self.open(Some(&"O_WRONLY|O_TRUNC"), &call, moment),
            "rename" | "link" => self.renamed(&call, [None, None], [0, 1], moment),
            "renameat" | "renameat2" | "linkat" => self.renamed(&call, [Some(0), Some(2)], [1, 3], moment),
            "unlink" => self.removed(self.path(&call, None, 0, moment), moment),
            "unlinkat" => self.removed(self.path(&call, Some(0), 1, moment), moment),
            "fstat" => self.stat(shown_path(first).map(Cow::into_owned), &call),
            "stat" | "lstat" => self.stat(self.path(&call, None, 0, moment), &call),
            "newfstatat" | "fstatat64" | "statx" => self.stat(self.path(&call, Some(0), 1, moment), &call),
            _ => {}
        }
    }

    /// The path that an argument names, relative to the directory of another argument or to the working directory.
    fn path(&self, call: &StraceCall<'_>, directory: Option<usize>, name: usize, moment: Moment) -> Option<String> {
        let name = quoted(call.arguments.get(name)?)?;
        let base = match directory {
            _ if name.starts_with('/') => None,
            Some(argument) => Some(shown_path(call.arguments.get(argument)?)?),
            None => Some(Cow::Borrowed(self.working_directories.get(&moment.pid)?.as_str())),
        };
        Some(normal(&base.map_or_else(|| name.to_string(), |base| format!("{base}/{name}"))))
    }

    /// The number of a file that counts.
    fn file(&mut self, path: &str) -> Option<usize> {
        let is_under = path.strip_prefix(&self.under).is_some_and(|rest| rest.starts_with('/'));
        if !is_under || VIRTUAL.iter().any(|dir| path.starts_with(dir)) {
            return None;
        }
        if let Some(number) = self.file_numbers.get(path) {
            return Some(*number);
        }
        self.files.push(RawFile {
            path: path.to_owned(),
            is_created: false,
            is_regular: true,
            first_size: None,
            size: None,
            sizeless_reads: Vec::new(),
            sizeless_write: None,
            is_read: false,
            is_accessed: false,
        });
        self.file_numbers.insert(path.to_owned(), self.files.len() - 1);
        Some(self.files.len() - 1)
    }

    fn open(&mut self, flags: Option<&&str>, call: &StraceCall<'_>, moment: Moment) {
        let flags = flags.copied().unwrap_or_default();
        if flags.contains("O_DIRECTORY") || flags.contains("O_PATH") {
            return;
        }
        let path = shown_path(call.result);
        let Some(file) = path.and_then(|path| self.file(&path)) else { return };
        let is_write = flags.contains("O_WRONLY") || flags.contains("O_TRUNC");
        self.access(file, if is_write { AccessKind::Write } else { AccessKind::Read }, moment);
    }

    /// A file got another name, or one more.
    fn renamed(&mut self, call: &StraceCall<'_>, directories: [Option<usize>; 2], names: [usize; 2], moment: Moment) {
        let [from, to] = [0, 1].map(|n| self.path(call, directories[n], names[n], moment));
        let (Some(from), Some(to)) = (from, to) else { return };
        // Names of directories are not in the table.
        let Some(from) = self.file_numbers.get(&from).copied() else { return };
        let is_regular = self.files.get(from).is_some_and(|file| file.is_regular);
        let Some(to) = self.file(&to).filter(|_| is_regular) else { return };
        if call.name.starts_with("rename") {
            self.access(from, AccessKind::Remove, moment);
        }
        self.access(to, AccessKind::Write, moment);
        if let Some(size) = self.files.get(from).and_then(|file| file.size) {
            self.sized(to, size);
        }
    }

    fn removed(&mut self, path: Option<String>, moment: Moment) {
        let known = path.and_then(|path| self.file_numbers.get(&path).copied());
        if let Some(file) = known {
            self.access(file, AccessKind::Remove, moment);
        }
    }

    fn access(&mut self, number: usize, kind: AccessKind, moment: Moment) {
        let access = self.accesses.len();
        let Some(file) = self.files.get_mut(number) else { return };
        file.is_created |= kind == AccessKind::Write && !file.is_accessed && file.first_size.is_none();
        file.is_accessed = true;
        file.is_read |= kind == AccessKind::Read;
        match kind {
            AccessKind::Read => file.sizeless_reads.push(access),
            AccessKind::Write => file.sizeless_write = Some(access),
            AccessKind::Remove => file.sizeless_write = None,
        }
        let Moment { program, at_ms, .. } = moment;
        self.accesses.push(RawAccess { program, at_ms, kind, file: number, size: file.size });
    }

    fn stat(&mut self, path: Option<String>, call: &StraceCall<'_>) {
        let Some(attributes) = call.arguments.iter().find(|argument| argument.starts_with('{')) else { return };
        let field = |name: &str| Some(attributes.split_once(name)?.1.split([',', '}']).next()?.trim());
        let Some(file) = path.and_then(|path| self.file(&path)) else { return };
        let is_regular = field("_mode=").is_some_and(|mode| mode.starts_with("S_IFREG"));
        if let Some(file) = self.files.get_mut(file) {
            file.is_regular = is_regular;
        }
        if let Some(size) = field("_size=").and_then(|size| size.parse().ok()).filter(|_| is_regular) {
            self.sized(file, size);
        }
    }

    /// The size of a file became known.
    fn sized(&mut self, number: usize, size: u64) {
        let Some(file) = self.files.get_mut(number) else { return };
        file.first_size = file.first_size.or(Some(size));
        file.size = Some(size);
        let was_read = !file.sizeless_reads.is_empty();
        let sizeless = file.sizeless_reads.drain(..).chain(file.sizeless_write);
        for access in sizeless {
            if let Some(access) = self.accesses.get_mut(access) {
                access.size = Some(size);
            }
        }
        // What was written is complete when it is read.
        if was_read {
            file.sizeless_write = None;
        }
    }

    /// The trace of what was read. `size_of` asks the file system for a size that the lines do not show.
    pub(super) fn finish(mut self, name: &str, size_of: impl Fn(&str) -> Option<u64>) -> (Trace, StraceDoubts) {
        for file in &mut self.files {
            let is_sizeless = file.is_accessed && file.size.is_none();
            file.size = if is_sizeless { size_of(&file.path) } else { file.size };
        }
        let paths: Vec<&str> = self.files.iter().map(|file| file.path.as_str()).collect();
        let kept = kept(&self.files);
        let ranks = anonymous::ranks(paths.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(path, _)| *path));
        let mut numbers = BTreeMap::new();
        let mut trace = Trace { name: name.to_owned(), programs: self.programs, ..Trace::default() };
        let by_path: BTreeMap<&Vec<u32>, usize> =
            ranks.iter().filter_map(|(path, ranks)| Some((ranks, *self.file_numbers.get(*path)?))).collect();
        for (path, number) in by_path {
            let Some(file) = self.files.get(number) else { continue };
            numbers.insert(number, trace.files.len());
            let size = if file.is_created { None } else { file.first_size.or(file.size) };
            trace.files.push(TracedFile { path: path.clone(), size });
        }
        let began_ms = self.accesses.first().map_or(0, |access| access.at_ms);
        let mut at_ms = 0;
        for access in self.accesses {
            let Some(file) = numbers.get(&access.file).copied() else { continue };
            let Some(size) = access.size.or_else(|| self.files.get(access.file)?.size) else {
                self.doubts.unknown_sizes += 1;
                continue;
            };
            // Lines of several processors are not quite in order.
            at_ms = access.at_ms.saturating_sub(began_ms).max(at_ms);
            trace.accesses.push(Access { program: access.program, at_ms, kind: access.kind, file, size });
        }
        (trace.with_readers_only(), self.doubts)
    }
}

/// Which files are part of the trace: regular ones that are accessed, or stand in a directory of one that is read. Those
/// that are created and that nothing reads are not.
fn kept(files: &[RawFile]) -> Vec<bool> {
    let directory = |path: &str| path.rsplit_once('/').map_or(String::new(), |(dir, _)| dir.to_owned());
    let read = files.iter().filter(|file| file.is_read && file.is_regular);
    let directories: std::collections::BTreeSet<String> = read.map(|file| directory(&file.path)).collect();
    let is_kept = |file: &RawFile| {
        let is_output = file.is_created && !file.is_read;
        let is_seen = file.first_size.is_some() && directories.contains(&directory(&file.path));
        file.is_regular && !is_output && (file.is_accessed || is_seen)
    };
    files.iter().map(is_kept).collect()
}

/// An absolute path without `.` and `..`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> (Trace, StraceDoubts) {
        let mut reader = StraceReader::new("/home");
        reader.read(lines.join("\n").as_bytes()).unwrap();
        reader.finish("t", |path| (path == "/home/late").then_some(99))
    }

    /// The accesses as in the text format.
    fn accesses(lines: &[&str]) -> Vec<String> {
        let text = read(lines).0.to_text();
        let is_access = |line: &&str| line.chars().nth(1).is_some_and(|c| c.is_ascii_digit());
        text.lines().filter(is_access).map(str::to_owned).collect()
    }

    #[test]
    fn open_gets_the_size_of_the_next_stat() {
        let lines = [
            r#"7<cc1> 1.000000 openat(AT_FDCWD</home/p>, "a.c", O_RDONLY|O_NOCTTY) = 3</home/p/a.c>"#,
            r#"7<cc1> 1.000000 newfstatat(3</home/p/a.c>, "", {st_mode=S_IFREG|0644, st_size=12, ...}, AT_EMPTY_PATH) = 0"#,
            r#"7<cc1> 1.005000 open("/usr/include/a.h", O_RDONLY) = 3</usr/include/a.h>"#,
            r#"7<cc1> 1.006000 open("/home/late", O_RDONLY) = 3</home/late>"#,
            r#"7<cc1> 1.006000 open("/home/gone", O_RDONLY) = 3</home/gone>"#,
            r#"7<cc1> 1.007000 openat(AT_FDCWD</home/p>, "b.c", O_RDONLY) = -1 ENOENT (No such file or directory)"#,
        ];
        let (trace, doubts) = read(&lines);
        assert_eq!(trace.to_text().lines().next_back(), Some("r1 +6"));
        assert_eq!(accesses(&lines).first().map(String::as_str), Some("r2 @0"));
        assert_eq!(trace.files.iter().map(|file| file.size).collect::<Vec<_>>(), [None, Some(99), Some(12)]);
        assert_eq!(doubts, StraceDoubts { unknown_sizes: 1, ..StraceDoubts::default() });
    }

    #[test]
    fn interrupted_call_is_joined() {
        let lines = [
            r#"7<a> 1.000000 openat(AT_FDCWD</home>, "a", O_RDONLY <unfinished ...>"#,
            r#"8<b> 1.001000 fstat(3</home/b>, {st_mode=S_IFREG|0644, st_size=5, ...}) = 0"#,
            r#"7<a> 1.002000 <... openat resumed>) = 3</home/a>"#,
            r#"7<a> 1.003000 fstat(3</home/a>, {st_mode=S_IFREG|0644, st_size=6, ...}) = 0"#,
        ];
        assert_eq!(accesses(&lines), ["r0 @0"]);
    }

    #[test]
    fn saved_file_is_written_under_its_name() {
        let lines = [
            r#"7<vim> 1.000000 openat(AT_FDCWD</home>, "a.tmp", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3</home/a.tmp>"#,
            r#"7<vim> 1.000000 fstat(3</home/a.tmp>, {st_mode=S_IFREG|0644, st_size=8, ...}) = 0"#,
            r#"7<vim> 1.001000 rename("a.tmp", "../home/a") = 0"#,
            r#"7<vim> 1.002000 openat(AT_FDCWD</home>, "a", O_RDONLY) = 3</home/a>"#,
            r#"7<vim> 1.003000 unlink("a") = 0"#,
        ];
        assert_eq!(accesses(&lines), ["w0 8 +1 @0", "r0 +1", "x0 +1"]);
    }

    #[test]
    fn size_of_a_write_is_that_at_the_next_read() {
        let lines = [
            r#"7<as> 1.000000 open("/home/o", O_RDWR|O_CREAT|O_TRUNC, 0666) = 3</home/o>"#,
            r#"7<as> 1.000000 fstat(3</home/o>, {st_mode=S_IFREG|0644, st_size=0, ...}) = 0"#,
            r#"7<ld> 1.001000 open("/home/o", O_RDONLY) = 3</home/o>"#,
            r#"7<ld> 1.001000 fstat(3</home/o>, {st_mode=S_IFREG|0644, st_size=400, ...}) = 0"#,
        ];
        assert_eq!(accesses(&lines), ["w0 400 @1", "r0 +1 @0"]);
    }

    #[test]
    fn bad_lines_are_counted() {
        let (trace, doubts) = read(&["7<a> 1.000000 +++ exited with 0 +++", "strace: attached", "", "x"]);
        assert_eq!((trace.accesses.len(), doubts.bad_lines, doubts.first_bad_line), (0, 3, Some(2)));
    }

    #[test]
    fn directories_and_devices_are_left_out() {
        let lines = [
            r#"7<a> 1.000000 open("/home/d", O_RDONLY) = 3</home/d>"#,
            r#"7<a> 1.000000 fstat(3</home/d>, {st_mode=S_IFDIR|0755, st_size=4096, ...}) = 0"#,
            r#"7<a> 1.000000 openat(AT_FDCWD</home>, "d", O_RDONLY|O_DIRECTORY) = 3</home/d>"#,
        ];
        assert_eq!(accesses(&lines), [""; 0]);
    }
}
