//! NFS-Ganesha in a network namespace of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::trials::{find, program};
use super::{Output, Place, Running, piped, until};

/// Programs that it needs.
pub(crate) const PROGRAMS: [&str; 6] = ["ip", "unshare", "rpcbind", "rpcinfo", "nsenter", "ganesha.nfsd"];
/// The first process of the namespaces: when it ends, at the latest after an hour, the kernel ends all that is in them.
/// rpcbind has its lock in /run.
const HOLDER: [&str; 8] =
    ["--net", "--pid", "--mount", "--fork", "--kill-child", "sh", "-c", "mount -t tmpfs tmpfs /run && exec sleep 3600"];

/// NFS-Ganesha in a network namespace of its own, which ends with its owner.
pub(crate) struct Ganesha {
    holder: Child,
    children: Vec<Child>,
    pub(crate) export: PathBuf,
}

impl Ganesha {
    pub(crate) fn start(p: &Place) -> Ganesha {
        let export = p.srv("export");
        fs::create_dir(&export).unwrap();
        let holder = program("unshare").args(HOLDER).spawn().unwrap();
        let mut ganesha = Ganesha { holder, children: Vec::new(), export };
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let inside = format!("/proc/{}/ns/net", ganesha.holder.id());
        until("a network namespace", || fs::read_link(&inside).is_ok_and(|ns| ns != own));
        let is_ready = |ganesha: &Ganesha| ganesha.apart("mountpoint", &["-q", "/run"]).output();
        until("its first process", || is_ready(&ganesha).is_ok_and(|o| o.status.success()));
        let up = ganesha.inside("ip", &["link", "set", "lo", "up"]).status().unwrap();
        assert!(up.success());
        let rpcbind = ganesha.apart("rpcbind", &["-f", "-w"]);
        ganesha.spawn(rpcbind);
        until("rpcbind", || ganesha.registered("portmapper"));
        let config = p.state().join("ganesha.conf");
        fs::write(&config, ganesha.config()).unwrap();
        let (log, pid) = (p.state().join("ganesha.log"), p.state().join("ganesha.pid"));
        let [config, log, pid] = [&config, &log, &pid].map(|p| p.to_str().unwrap());
        let server = ganesha.apart("ganesha.nfsd", &["-F", "-f", config, "-L", log, "-p", pid]);
        ganesha.spawn(server);
        until("NFS-Ganesha", || fs::read_to_string(log).is_ok_and(|l| l.contains("NFS SERVER INITIALIZED")));
        ganesha
    }

    fn config(&self) -> String {
        format!(
            "NFS_CORE_PARAM {{ Protocols = 3; Enable_UDP = true; Enable_NLM = false; MNT_Port = 20048;
                NFS_Port = 2049; allow_set_io_flusher_fail = true; }}
             EXPORT {{ Export_Id = 1; Path = {0}; Pseudo = /export; Protocols = 3; Transports = UDP,TCP;
                Access_Type = RW; Squash = No_Root_Squash; SecType = sys; FSAL {{ Name = VFS; }} }}",
            self.export.display()
        )
    }

    fn enter(&self) -> Command {
        let mut command = program("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id()));
        command
    }

    /// Mounts the export at `dir`. The mount does not end with the namespace.
    pub(crate) fn mount(&self, place: &Place, dir: &Path, flags: &[&str]) -> Output {
        let url = format!("nfs://127.0.0.1:2049{}?mountport=20048", self.export.display());
        let mount = place.command(&[&["mount", &url, dir.to_str().unwrap()][..], flags].concat());
        let mut inside = self.enter();
        inside.arg(mount.get_program()).args(mount.get_args()).current_dir(place.here(""));
        inside.envs(mount.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Running::start(piped(inside)).finish()
    }

    /// A command to be run in the namespaces.
    pub(crate) fn inside(&self, name: &str, args: &[&str]) -> Command {
        self.run_in(self.enter(), name, args)
    }

    /// A command that has its own /run, too, and no working directory.
    fn apart(&self, name: &str, args: &[&str]) -> Command {
        let mut command = self.enter();
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()));
        self.run_in(command, name, args)
    }

    fn run_in(&self, mut command: Command, name: &str, args: &[&str]) -> Command {
        command.arg(format!("--pid=/proc/{}/ns/pid_for_children", self.holder.id()));
        command.arg(find(name).unwrap_or_else(|| name.into())).args(args);
        piped(command)
    }

    fn spawn(&mut self, mut command: Command) {
        self.children.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    }

    fn registered(&self, program: &str) -> bool {
        let out = self.inside("rpcinfo", &["-p", "127.0.0.1"]).output().unwrap();
        String::from_utf8_lossy(&out.stdout).contains(program)
    }

    /// Runs `remora` in the namespace; it must succeed.
    pub(crate) fn remora(&self, p: &Place, args: &[&str]) -> String {
        let mut command = self.inside(env!("CARGO_BIN_EXE_remora"), args);
        command.current_dir(p.here("")).env("XDG_STATE_HOME", p.state());
        let out = Running::start(command).finish();
        assert_eq!(out.code, 0, "{args:?}: {}", out.stderr);
        out.stdout
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        for child in [&mut self.holder].into_iter().chain(&mut self.children) {
            // It may have ended before.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
