//! A small file system mounted for real: calls, signals, the end of its process. The file system and its callers are
//! processes of their own, so that the end of the file system frees every caller.

mod file_system;
mod probe;

use std::ffi::CStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use remora_host::fuse::{Connection, FuseError, MountOptions, abort, unmount};
use rustix::mount::{MountFlags, UnmountFlags, mount};
use rustix::process::{Pid, Signal, kill_process};

/// Without what is tested a call waits for ever, so the length of this decides nothing.
const GUARD: Duration = Duration::from_secs(60);
/// Time in which a signal that should have no effect could have one: many looks at the caller.
const WITHOUT_EFFECT: Duration = Duration::from_millis(300);
/// An unprivileged user and group, which own nothing.
const NOBODY: u32 = 65_534;

fn main() {
    if let Some(dir) = std::env::var_os(file_system::DIR) {
        return file_system::serve(dir.as_ref());
    }
    if let Some(path) = std::env::var_os(probe::PATH) {
        return probe::call(path.as_ref());
    }
    let tests: &[(&str, fn())] = &[
        ("mounted_file_system_lists_and_reads", mounted_file_system_lists_and_reads),
        ("unmounting_ends_the_process", unmounting_ends_the_process),
        ("held_call_ends_with_sigkill", held_call_ends_with_sigkill),
        ("held_call_ends_with_a_fatal_signal", held_call_ends_with_a_fatal_signal),
        ("caught_signal_leaves_held_call_alone", caught_signal_leaves_held_call_alone),
        ("held_call_ends_with_sigkill_after_another_signal", held_call_ends_with_sigkill_after_another_signal),
        ("queued_notification_stops_no_caller", queued_notification_stops_no_caller),
        ("dead_mount_fails_at_once_and_is_replaced", dead_mount_fails_at_once_and_is_replaced),
        ("second_mount_at_a_directory_is_refused", second_mount_at_a_directory_is_refused),
        ("abort_ends_held_call", abort_ends_held_call),
        ("user_mounts_by_fusermount", user_mounts_by_fusermount),
    ];
    let trials = tests.iter().map(|&(name, test)| {
        Trial::test(name, move || {
            match reason_to_skip() {
                Some(why) => skip::skipped(name, why),
                None => test(),
            }
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn reason_to_skip() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root, to mount");
    }
    (!Path::new("/dev/fuse").exists()).then_some("no /dev/fuse")
}

/// A mounted file system in a process of its own.
struct Mounted {
    process: Child,
    commands: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
    dir: PathBuf,
    _parent: Option<tempfile::TempDir>,
}

impl Mounted {
    fn new() -> Mounted {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("mount");
        fs::create_dir(&dir).unwrap();
        let mut mounted = Mounted::at(dir, |_| {});
        mounted._parent = Some(parent);
        mounted
    }

    fn at(dir: PathBuf, configure: impl Fn(&mut Command)) -> Mounted {
        let mounted = Mounted::start(dir, configure);
        assert_eq!(mounted.line(), "ready");
        mounted
    }

    fn start(dir: PathBuf, configure: impl Fn(&mut Command)) -> Mounted {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(file_system::DIR, &dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        configure(&mut command);
        let mut process = command.spawn().unwrap();
        let commands = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (line, lines) = mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|text| line.send(text)));
        Mounted { process, commands, lines, dir, _parent: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The next line that the file system prints.
    fn line(&self) -> String {
        self.lines.recv_timeout(GUARD).expect("the file system says something")
    }

    fn command(&mut self, command: &str) {
        writeln!(self.commands.as_mut().unwrap(), "{command}").unwrap();
    }

    /// A caller whose call is held.
    fn held_caller(&self) -> Caller {
        let caller = Caller::start(&self.path("held"));
        assert_eq!(self.line(), format!("held by {}", caller.0.id()));
        caller
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.kill();
        let _ = unmount(&self.dir);
    }
}

/// A process that calls stat(2) once.
struct Caller(Child);

impl Caller {
    fn start(path: &Path) -> Caller {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(probe::PATH, path).stdout(Stdio::piped()).stderr(Stdio::null());
        // A core dump belongs outside the mount, and goes away with it.
        command.current_dir(path.ancestors().nth(2).unwrap());
        Caller(command.spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn is_waiting(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits for the end; `None` if the guard expires.
    fn end(&mut self) -> Option<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < GUARD {
            if let Some(status) = self.0.try_wait().unwrap() {
                println!("the caller ended after {:?}", start.elapsed());
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }

    /// The signal by which the caller ended.
    fn killed_by(&mut self) -> Option<i32> {
        self.end().expect("the call ends").signal()
    }

    /// What the call returned.
    fn output(mut self) -> String {
        assert!(self.end().expect("the call ends").success());
        let output = self.0.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

fn mounted_file_system_lists_and_reads() {
    let mounted = Mounted::new();
    let names = fs::read_dir(&mounted.dir).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["file"]);
    assert_eq!(fs::read(mounted.path("file")).unwrap(), file_system::content());
    assert_eq!(fs::metadata(mounted.path("file")).unwrap().len(), file_system::content().len() as u64);
    assert_eq!(fs::metadata(mounted.path("none")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(table.contains(" - fuse.remora test:/export "), "{table}");
}

fn unmounting_ends_the_process() {
    let mut mounted = Mounted::new();
    unmount(&mounted.dir).unwrap();
    assert_eq!(mounted.line(), "unmounted");
    assert!(mounted.process.wait().unwrap().success());
    assert_eq!(fs::read_dir(&mounted.dir).unwrap().count(), 0);
    assert!(matches!(unmount(&mounted.dir), Err(FuseError::NotMounted { .. })));
    // The file system unmounts itself, too.
    let mut mounted = Mounted::new();
    mounted.command("unmount");
    assert_eq!(mounted.line(), "unmounted");
    assert!(matches!(unmount(&mounted.dir), Err(FuseError::NotMounted { .. })));
}

fn held_call_ends_with_sigkill() {
    let mounted = Mounted::new();
    let mut caller = mounted.held_caller();
    caller.signal(Signal::KILL);
    assert_eq!(caller.killed_by(), Some(Signal::KILL.as_raw()));
    assert_eq!(mounted.line(), "interrupted");
}

fn held_call_ends_with_a_fatal_signal() {
    let mounted = Mounted::new();
    // A caller inherits signals that are ignored, as SIGINT in the background.
    for signal in [Signal::INT, Signal::TERM, Signal::QUIT, Signal::USR1].into_iter().filter(|s| !is_ignored(*s)) {
        let mut caller = mounted.held_caller();
        caller.signal(signal);
        assert_eq!(caller.killed_by(), Some(signal.as_raw()));
        assert_eq!(mounted.line(), "interrupted");
    }
}

fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(set.trim(), 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
}

fn caught_signal_leaves_held_call_alone() {
    let mut mounted = Mounted::new();
    let mut caller = mounted.held_caller();
    for _ in 0..3 {
        caller.signal(Signal::ALARM);
        std::thread::sleep(WITHOUT_EFFECT);
        assert!(caller.is_waiting());
    }
    mounted.command("release");
    assert_eq!(caller.output(), "ENOENT");
    assert_eq!(mounted.line(), "released 1");
}

fn held_call_ends_with_sigkill_after_another_signal() {
    let mounted = Mounted::new();
    for first in [Signal::ALARM, Signal::URG, Signal::WINCH] {
        let mut caller = mounted.held_caller();
        caller.signal(first);
        std::thread::sleep(WITHOUT_EFFECT);
        assert!(caller.is_waiting());
        caller.signal(Signal::KILL);
        assert_eq!(caller.killed_by(), Some(Signal::KILL.as_raw()));
        assert_eq!(mounted.line(), "interrupted");
    }
}

fn queued_notification_stops_no_caller() {
    let mut mounted = Mounted::new();
    let caller = mounted.held_caller();
    mounted.command("notify");
    assert_eq!(mounted.line(), "notified");
    // The notification takes the lock of the directory. Written now, it would wait, and these behind it.
    std::thread::sleep(WITHOUT_EFFECT);
    assert_eq!(Caller::start(&mounted.path("file")).output(), "found");
    assert_eq!(Caller::start(&mounted.path("none")).output(), "ENOENT");
    mounted.command("release");
    assert_eq!(caller.output(), "ENOENT");
}

fn dead_mount_fails_at_once_and_is_replaced() {
    let mut first = Mounted::new();
    let caller = first.held_caller();
    first.kill();
    // ENOTCONN on some paths, ECONNABORTED on others.
    let error = caller.output();
    assert!(["ENOTCONN", "ECONNABORTED"].contains(&&*error), "{error}");
    assert_eq!(Caller::start(&first.path("file")).output(), "ENOTCONN");
    let second = Mounted::at(first.dir.clone(), |_| {});
    assert_eq!(fs::read(second.path("file")).unwrap(), file_system::content());
    drop(second);
    // Nothing is left below.
    assert!(matches!(unmount(&first.dir), Err(FuseError::NotMounted { .. })));
}

fn second_mount_at_a_directory_is_refused() {
    let mounted = Mounted::new();
    let again = Connection::mount(&mounted.dir, &MountOptions::default());
    let error = again.err().expect("a file system that lives is not covered");
    assert!(error.to_string().contains("test:/export is mounted there already"), "{error}");
    assert_eq!(fs::read(mounted.path("file")).unwrap(), file_system::content());
}

fn abort_ends_held_call() {
    let Some(_control_files) = ControlFiles::mounted() else {
        return skip::skipped("abort_ends_held_call", "no fusectl");
    };
    let mounted = Mounted::new();
    let caller = mounted.held_caller();
    abort(&mounted.dir).unwrap();
    let error = caller.output();
    assert!(["ENOTCONN", "ECONNABORTED"].contains(&&*error), "{error}");
}

/// The mounted control files of FUSE. Dropping it unmounts them if this test mounted them.
struct ControlFiles {
    is_ours: bool,
}

impl ControlFiles {
    const DIR: &str = "/sys/fs/fuse/connections";

    fn mounted() -> Option<ControlFiles> {
        let is_ours = !fs::read_to_string("/proc/self/mountinfo").unwrap().contains(" - fusectl ");
        let mount = || mount("none", ControlFiles::DIR, "fusectl", MountFlags::empty(), None::<&CStr>);
        (!is_ours || mount().is_ok()).then_some(ControlFiles { is_ours })
    }
}

impl Drop for ControlFiles {
    fn drop(&mut self) {
        if self.is_ours {
            rustix::mount::unmount(ControlFiles::DIR, UnmountFlags::DETACH).unwrap();
        }
    }
}

/// Replaces /dev/fuse by a device that every user may open, and runs the program in the arguments.
const OPEN_DEVICE: &str = "mount -t tmpfs -o mode=755 tmpfs /mnt; mknod -m 666 /mnt/fuse c 10 229
mount --bind /mnt/fuse /dev/fuse; exec \"$@\"";

fn user_mounts_by_fusermount() {
    const NAME: &str = "user_mounts_by_fusermount";
    if Command::new("fusermount3").arg("-V").output().is_err() {
        return skip::skipped(NAME, "no fusermount3");
    }
    if fs::metadata("/dev/fuse").unwrap().permissions().mode() & 0o006 != 0o006 {
        // In a mount namespace with a device that users may open.
        let mut again = Command::new("unshare");
        again.args(["--mount", "--propagation", "private", "sh", "-euc", OPEN_DEVICE, "sh"]);
        again.arg(std::env::current_exe().unwrap()).args(["--exact", NAME]).stdout(Stdio::null());
        assert!(again.status().unwrap().success(), "the test in a namespace of its own passes");
        return;
    }
    let as_nobody = |command: &mut Command| _ = command.uid(NOBODY).gid(NOBODY);
    let mut program = Command::new(std::env::current_exe().unwrap());
    as_nobody(program.arg("--list").stdout(Stdio::null()));
    if program.status().is_err() {
        return skip::skipped(NAME, "other users cannot run the test program");
    }
    let parent = tempfile::tempdir().unwrap();
    chown(parent.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let dir = parent.path().join("mount");
    fs::create_dir(&dir).unwrap();
    let others = Mounted::start(dir.clone(), as_nobody);
    let refusal = others.line();
    assert!(refusal.contains("no write access"), "the directory is root's: {refusal}");
    chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();

    let mut mounted = Mounted::at(dir.clone(), as_nobody);
    let mut reader = Command::new("cat");
    as_nobody(reader.arg(dir.join("file")));
    assert_eq!(reader.output().unwrap().stdout, file_system::content());
    mounted.command("unmount");
    assert_eq!(mounted.line(), "unmounted");
    let mut again = Mounted::at(dir.clone(), as_nobody);
    again.kill();
    let mut replaced = Mounted::at(dir, as_nobody);
    replaced.command("unmount");
    assert_eq!(replaced.line(), "unmounted");
}
