//! Attaching a connection to a directory: by mount(2) as root, else by fusermount3, which is setuid root.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::error::FuseError;
use super::mount_table::fuse_mount_at;
use super::options::{MountOptions, SUBTYPE};

const DEVICE: &str = "/dev/fuse";
const FUSERMOUNT: &str = "fusermount3";
/// Environment variable by which fusermount3 learns the number of the socket for its answer.
const ANSWER_FD: &str = "_FUSE_COMMFD";
/// Time in which a file system that is alive answers statfs(2).
const ALIVE_WITHIN: Duration = Duration::from_secs(1);
/// Maximum number of dead mounts above each other that are removed.
const DEAD_MOUNTS_MAX: usize = 64;

/// A directory with a connection attached.
pub(super) struct Attached {
    pub(super) device: OwnedFd,
    /// The directory, without symbolic links.
    pub(super) dir: PathBuf,
}

/// Mounts at `dir`, after removing a mount whose process is gone.
pub(super) fn attach(dir: &Path, options: &MountOptions) -> Result<Attached, FuseError> {
    let dir = fs::canonicalize(dir).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => FuseError::NoDirectory { dir: dir.to_owned() },
        _ => FuseError::Mount { dir: dir.to_owned(), source },
    })?;
    remove_dead_mounts(&dir)?;
    let is_dir = fs::metadata(&dir).map_err(|source| FuseError::Mount { dir: dir.clone(), source })?.is_dir();
    if !is_dir {
        return Err(FuseError::NotADirectory { dir });
    }
    let as_root = if rustix::process::geteuid().is_root() { by_system_call(&dir, options)? } else { None };
    let device = match as_root {
        Some(device) => device,
        None => by_fusermount(&dir, options)?,
    };
    Ok(Attached { device, dir })
}

/// Removes mounts at `dir` that answer ENOTCONN. A mount that is alive is an error.
fn remove_dead_mounts(dir: &Path) -> Result<(), FuseError> {
    for _ in 0..DEAD_MOUNTS_MAX {
        let mount = fuse_mount_at(dir).map_err(|source| FuseError::Mount { dir: dir.to_owned(), source })?;
        let Some(mount) = mount else { return Ok(()) };
        if !is_dead(dir) {
            return Err(FuseError::AlreadyMounted { dir: dir.to_owned(), source_name: mount.source });
        }
        detach(dir)?;
    }
    Ok(())
}

/// Whether the process behind the mount at `dir` is gone. A mount that does not answer is alive.
fn is_dead(dir: &Path) -> bool {
    let (answer, answers) = mpsc::channel();
    let dir = dir.to_owned();
    // A thread of its own: the call may wait for a server.
    std::thread::spawn(move || answer.send(rustix::fs::statfs(&dir).err()));
    answers.recv_timeout(ALIVE_WITHIN) == Ok(Some(Errno::NOTCONN))
}

/// Mounts by mount(2); `None` if the process may not.
fn by_system_call(dir: &Path, options: &MountOptions) -> Result<Option<OwnedFd>, FuseError> {
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|e| match e {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => FuseError::NoDevice { dir: dir.to_owned() },
        e => FuseError::Device { dir: dir.to_owned(), source: e.into() },
    })?;
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let data = options.for_mount(device.as_raw_fd(), uid.as_raw(), gid.as_raw());
    let data = CString::new(data).expect("options are numbers and words");
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, options.read_only);
    match rustix::mount::mount(&*options.fsname, dir, format!("fuse.{SUBTYPE}"), flags, &*data) {
        Ok(()) => Ok(Some(device)),
        Err(Errno::PERM) => Ok(None),
        Err(Errno::NODEV) => Err(FuseError::NoDevice { dir: dir.to_owned() }),
        Err(e) => Err(FuseError::Mount { dir: dir.to_owned(), source: e.into() }),
    }
}

/// Mounts by fusermount3, which passes the descriptor of the device over a socket.
fn by_fusermount(dir: &Path, options: &MountOptions) -> Result<OwnedFd, FuseError> {
    let failed = |source| FuseError::Mount { dir: dir.to_owned(), source };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    // As its standard input, the socket reaches this child only.
    let mut command = Command::new(FUSERMOUNT);
    command.arg("-o").arg(options.for_fusermount()).arg("--").arg(dir).env(ANSWER_FD, "0").env("LC_ALL", "C");
    let child = command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    // The child's end must close with the child.
    drop(command);
    let child = child.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => FuseError::NoFusermount { dir: dir.to_owned() },
        _ => failed(source),
    })?;
    let device = receive_descriptor(&ours).map_err(|e| failed(e.into()))?;
    let output = child.wait_with_output().map_err(failed)?;
    device.ok_or_else(|| refusal(dir, &String::from_utf8_lossy(&output.stderr)))
}

/// The descriptor that the peer sends; `None` if it closes its end instead.
fn receive_descriptor(socket: &UnixStream) -> Result<Option<OwnedFd>, Errno> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut data = [io::IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

/// The error that fusermount3 prints.
fn refusal(dir: &Path, printed: &str) -> FuseError {
    let dir = dir.to_owned();
    if printed.contains("user_allow_other") {
        return FuseError::AllowOther { dir };
    }
    if printed.contains("fuse device not found") {
        return FuseError::NoDevice { dir };
    }
    if printed.contains("failed to open /dev/fuse") {
        return FuseError::Device { dir, source: io::ErrorKind::PermissionDenied.into() };
    }
    FuseError::Fusermount { dir, message: first_line(printed) }
}

fn first_line(printed: &str) -> String {
    let line = printed.lines().find(|line| !line.trim().is_empty());
    line.map_or_else(|| format!("{FUSERMOUNT} failed without a message"), |line| line.trim().to_owned())
}

/// Unmounts the FUSE file system at `dir` at once. Programs that have files open there keep them until they close
/// them.
pub fn unmount(dir: &Path) -> Result<(), FuseError> {
    let failed = |e: io::Error| FuseError::Unmount { dir: dir.to_owned(), message: e.to_string() };
    let dir = fs::canonicalize(dir).map_err(failed)?;
    match fuse_mount_at(&dir).map_err(failed)? {
        Some(_) => detach(&dir),
        None => Err(FuseError::NotMounted { dir }),
    }
}

/// Unmounts what is mounted at `dir`, an absolute path without symbolic links.
pub(super) fn detach(dir: &Path) -> Result<(), FuseError> {
    let failed = |message| FuseError::Unmount { dir: dir.to_owned(), message };
    match rustix::mount::unmount(dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) => {}
        Err(e) => return Err(failed(io::Error::from(e).to_string())),
    }
    let mut command = Command::new(FUSERMOUNT);
    command.args(["-u", "-z", "--"]).arg(dir).env("LC_ALL", "C").stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failed(first_line(&String::from_utf8_lossy(&output.stderr)))),
        Err(e) => Err(failed(format!("cannot run {FUSERMOUNT}: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_says_what_to_do() {
        let refusal = |printed: &str| refusal(Path::new("/mnt"), printed).to_string();
        let allow_other =
            "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf\n";
        assert!(refusal(allow_other).contains("add it as root"));
        let no_device = "fusermount3: fuse device not found, try 'modprobe fuse' first\n";
        assert!(refusal(no_device).contains("modprobe fuse"));
        let no_permission = "fusermount3: failed to open /dev/fuse: Permission denied\n";
        assert!(refusal(no_permission).contains("chmod"));
        let other = "\nfusermount3: user has no write access to mountpoint /mnt\n";
        assert_eq!(refusal(other), "cannot mount at /mnt: fusermount3: user has no write access to mountpoint /mnt");
        assert!(refusal("").contains("without a message"));
    }

    #[test]
    fn only_an_existing_directory_can_be_mounted_at() {
        let dir = tempfile::tempdir().unwrap();
        let mount = |name: &str| attach(&dir.path().join(name), &MountOptions::default()).err().unwrap();
        assert!(matches!(mount("missing"), FuseError::NoDirectory { .. }));
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(matches!(mount("file"), FuseError::NotADirectory { .. }));
    }

    #[test]
    fn what_is_not_mounted_cannot_be_unmounted() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(unmount(dir.path()), Err(FuseError::NotMounted { .. })));
    }
}
