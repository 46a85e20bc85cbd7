//! Enables IP forwarding while links need it, and restores the old state when the last of them ends.
//!
//! The global switch (`ip_forward`) also resets other settings (ip-sysctl: "resets all configuration parameters to
//! their default state"), so the switches of each interface and the default for new ones are set instead. IPv6 has a
//! switch with effect for each interface (`force_forwarding`) since Linux 6.17; before, only the global switch works.
//!
//! The links of a network namespace share a file with the old state. Each link holds a lock on it while it runs. A
//! link that finds no other holder restores the state.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use rustix::fs::{FlockOperation, flock};

use crate::link::control;
use crate::link::error::LinkError;

const V4: &str = "/proc/sys/net/ipv4/conf";
const V6: &str = "/proc/sys/net/ipv6/conf";
/// The scopes under `conf` besides the interfaces.
const ALL: &str = "all";
const DEFAULT: &str = "default";
/// The interface that forwards nothing.
const LOOPBACK: &str = "lo";

/// Keeps forwarding enabled until it is dropped, or longer if another link needs it.
pub(in crate::link) struct Forwarding {
    _families: Vec<Hold>,
}

impl Forwarding {
    /// Enables forwarding for the address families of `addresses`, where it is disabled.
    pub(in crate::link) fn on(addresses: &[IpNet]) -> Result<Forwarding, LinkError> {
        let mut wanted = Vec::new();
        if addresses.iter().any(|a| a.addr().is_ipv4()) {
            wanted.push(("ipv4", Switches::each(V4, "forwarding")));
        }
        if addresses.iter().any(|a| a.addr().is_ipv6()) {
            let each = Switches::each(V6, "force_forwarding");
            let old_kernel = !each.path(ALL).exists();
            wanted.push(("ipv6", if old_kernel { Switches::all(V6, "forwarding") } else { each }));
        }
        let mut families = Vec::new();
        for (name, switches) in wanted {
            let conf = switches.conf.display().to_string();
            let hold = place().and_then(|(dir, namespace)| Hold::take(&dir, &format!("{namespace}-{name}"), switches));
            families.push(hold.map_err(|source| LinkError::Forward { conf, source })?);
        }
        Ok(Forwarding { _families: families })
    }
}

/// The directory of the shared files, and the name of this network namespace.
fn place() -> io::Result<(PathBuf, String)> {
    let dir = control::directory().ok_or_else(|| io::Error::other("XDG_RUNTIME_DIR is not set"))?;
    let namespace = fs::metadata("/proc/thread-self/ns/net")?.ino();
    Ok((dir.with_file_name("forward"), format!("net-{namespace}")))
}

/// The values of the switches, by interface.
type Values = BTreeMap<String, String>;

/// The kernel's switches of one address family.
struct Switches {
    conf: PathBuf,
    knob: &'static str,
    /// Whether the global switch sets those of all interfaces and is required.
    through_all: bool,
}

impl Switches {
    fn each(conf: impl Into<PathBuf>, knob: &'static str) -> Switches {
        Switches { conf: conf.into(), knob, through_all: false }
    }

    fn all(conf: impl Into<PathBuf>, knob: &'static str) -> Switches {
        Switches { conf: conf.into(), knob, through_all: true }
    }

    fn path(&self, interface: &str) -> PathBuf {
        self.conf.join(interface).join(self.knob)
    }

    /// Whether forwarding is enabled globally.
    fn machine_forwards(&self) -> io::Result<bool> {
        read(&self.conf.join(ALL).join("forwarding")).map(|v| v != "0")
    }

    /// The values of all interfaces; those removed meanwhile are omitted.
    fn values(&self) -> io::Result<Values> {
        let mut values = Values::new();
        for entry in fs::read_dir(&self.conf)? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            if name == LOOPBACK && !self.through_all {
                continue;
            }
            if let Ok(value) = read(&self.path(&name)) {
                values.insert(name, value);
            }
        }
        Ok(values)
    }

    /// Adds the values about to change to `before`; returns the switches to enable.
    fn plan(&self, before: &mut Values) -> io::Result<Vec<String>> {
        let now = self.values()?;
        if self.machine_forwards()? {
            return Ok(Vec::new());
        }
        let off = now.iter().filter(|(name, value)| *value == "0" && *name != ALL).map(|(name, _)| name.clone());
        let on = if self.through_all { vec![ALL.to_owned()] } else { off.collect() };
        let is_first = before.is_empty();
        for (name, value) in now {
            // An interface created since the first link started has the link's default instead of its own.
            if is_first || on.contains(&name) {
                before.entry(name).or_insert(value);
            }
        }
        Ok(on)
    }

    /// Whether the default for new interfaces is on and was off before: a killed link left it on.
    fn are_left_on(&self, before: &Values) -> bool {
        let scope = if self.through_all { ALL } else { DEFAULT };
        let is_on = || read(&self.path(scope)).is_ok_and(|value| value != "0");
        before.get(scope).is_some_and(|value| value == "0") && is_on()
    }

    fn put_back(&self, before: &Values) -> io::Result<()> {
        let Some(all) = before.get(ALL) else { return Ok(()) };
        if self.through_all {
            fs::write(self.path(ALL), all)?;
        } else if read(&self.path(ALL))? != *all {
            // An administrator has changed the global switch since, so it stays.
            return Ok(());
        }
        for (name, value) in self.values()? {
            let was = before.get(&name).or(before.get(DEFAULT));
            if let Some(was) = was.filter(|was| **was != value) {
                // A removed interface needs no restoration.
                let _ = fs::write(self.path(&name), was);
            }
        }
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

/// A link's hold on the shared file of a namespace.
struct Hold {
    switches: Switches,
    dir: PathBuf,
    path: PathBuf,
    /// Locked in shared mode while forwarding is needed. Contains the old values.
    shared: File,
}

impl Hold {
    fn take(dir: &Path, name: &str, switches: Switches) -> io::Result<Hold> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let turn = turn(dir)?;
        let path = dir.join(name);
        let shared = open(&path)?;
        let alone = flock(&shared, FlockOperation::NonBlockingLockExclusive).is_ok();
        flock(&shared, FlockOperation::LockShared)?;
        let mut hold = Hold { switches, dir: dir.to_owned(), path, shared };
        // The values of a killed link are used while its switches are unchanged.
        if alone && !hold.before().is_ok_and(|before| hold.switches.are_left_on(&before)) {
            hold.shared.set_len(0)?;
        }
        let switched = hold.switch_on();
        // Unlocks before a failed hold is dropped, which takes the lock itself.
        drop(turn);
        switched.map(|()| hold)
    }

    fn switch_on(&mut self) -> io::Result<()> {
        let mut before = self.before()?;
        let on = self.switches.plan(&mut before)?;
        self.shared.rewind()?;
        self.shared.set_len(0)?;
        self.shared.write_all(&serde_json::to_vec(&before)?)?;
        for interface in on {
            match fs::write(self.switches.path(&interface), "1") {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                written => written?,
            }
        }
        Ok(())
    }

    fn before(&mut self) -> io::Result<Values> {
        let mut text = String::new();
        self.shared.rewind()?;
        self.shared.read_to_string(&mut text)?;
        if text.is_empty() { Ok(Values::new()) } else { Ok(serde_json::from_str(&text)?) }
    }

    fn leave(&mut self) -> io::Result<()> {
        let _turn = turn(&self.dir)?;
        // If other links hold the lock, this fails and releases this link's lock, too.
        if flock(&self.shared, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let before = self.before()?;
            fs::remove_file(&self.path)?;
            self.switches.put_back(&before)?;
        }
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // An error in `drop` cannot be reported.
        let _ = self.leave();
    }
}

/// Locks the directory: one link at a time reads and changes switches, and creates or removes the file of a namespace.
/// Unlocked when the file is dropped.
fn turn(dir: &Path) -> io::Result<File> {
    let lock = open(&dir.join("lock"))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy of `/proc/sys/net/ipv4/conf` without the kernel's side effects.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new(values: &[(&str, &str)]) -> Machine {
            let machine = Machine(tempfile::tempdir().unwrap());
            values.iter().for_each(|(name, value)| machine.set(name, value));
            machine
        }

        fn conf(&self) -> PathBuf {
            self.0.path().join("conf")
        }

        fn set(&self, interface: &str, value: &str) {
            fs::create_dir_all(self.conf().join(interface)).unwrap();
            fs::write(self.conf().join(interface).join("forwarding"), format!("{value}\n")).unwrap();
        }

        fn link(&self) -> Hold {
            Hold::take(&self.0.path().join("run"), "net-1-ipv4", Switches::each(self.conf(), "forwarding")).unwrap()
        }

        fn values(&self) -> String {
            let values = Switches::all(self.conf(), "forwarding").values().unwrap();
            values.iter().map(|(name, value)| format!("{name} {value} ")).collect::<String>().trim_end().to_owned()
        }
    }

    const QUIET: [(&str, &str); 5] = [("all", "0"), ("default", "0"), ("lo", "0"), ("eth0", "0"), ("eth1", "1")];

    #[test]
    fn last_link_restores_forwarding() {
        let m = Machine::new(&QUIET);
        let (before, during) = (m.values(), "all 0 default 1 eth0 1 eth1 1 lo 0");
        let first = m.link();
        assert_eq!(m.values(), during);
        let second = m.link();
        drop(first);
        assert_eq!(m.values(), during, "the second still wants it");
        let third = m.link();
        drop(second);
        assert_eq!(m.values(), during);
        drop(third);
        assert_eq!(m.values(), before);
        drop(m.link());
        assert_eq!(m.values(), before);
        let left: Vec<_> = fs::read_dir(m.0.path().join("run")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["lock"]);
    }

    #[test]
    fn interface_changes_do_not_break_restoration() {
        let m = Machine::new(&QUIET);
        let first = m.link();
        fs::remove_dir_all(m.conf().join("eth0")).unwrap();
        m.set("wlan0", "1"); // as the default is now
        m.set("wlan1", "0");
        let second = m.link();
        assert_eq!(m.values(), "all 0 default 1 eth1 1 lo 0 wlan0 1 wlan1 1");
        drop((first, second));
        assert_eq!(m.values(), "all 0 default 0 eth1 1 lo 0 wlan0 0 wlan1 0");
    }

    #[test]
    fn global_forwarding_by_others_is_kept() {
        let m = Machine::new(&QUIET);
        let link = m.link();
        m.set("all", "1");
        drop(link);
        assert_eq!(m.values(), "all 1 default 1 eth0 1 eth1 1 lo 0");
        let m = Machine::new(&[("all", "1"), ("default", "0"), ("eth0", "0")]);
        drop(m.link());
        assert_eq!(m.values(), "all 1 default 0 eth0 0", "somebody decided so, interface by interface");
    }

    #[test]
    fn stale_values_of_killed_link_are_ignored() {
        let m = Machine::new(&QUIET);
        let killed = m.link();
        let copy = fs::read(&killed.path).unwrap();
        drop(killed);
        fs::write(m.0.path().join("run/net-1-ipv4"), copy).unwrap();
        m.set("eth0", "1");
        drop(m.link());
        assert_eq!(m.values(), "all 0 default 0 eth0 1 eth1 1 lo 0");
    }

    #[test]
    fn next_link_restores_values_of_killed_link() {
        for (through_all, quiet) in [(false, "all 0 default 0 eth0 0 eth1 1 lo 0"), (true, "all 0")] {
            let m = Machine::new(&QUIET);
            let switches = || match through_all {
                false => Switches::each(m.conf(), "forwarding"),
                true => Switches::all(m.conf(), "forwarding"),
            };
            let link = || Hold::take(&m.0.path().join("run"), "net-1-ipv4", switches()).unwrap();
            let killed = link();
            let left = QUIET.map(|(name, _)| (name, fs::read(switches().path(name)).unwrap()));
            let record = fs::read(&killed.path).unwrap();
            drop(killed);
            left.iter().for_each(|(name, value)| fs::write(switches().path(name), value).unwrap());
            fs::write(m.0.path().join("run/net-1-ipv4"), record).unwrap();
            drop(link());
            assert!(m.values().starts_with(quiet), "{}", m.values());
        }
    }

    #[test]
    fn global_switch_of_old_kernel_restores_interfaces() {
        let m = Machine::new(&[("all", "0"), ("default", "0"), ("eth0", "0"), ("lo", "1")]);
        let switches = || Switches::all(m.conf(), "forwarding");
        let hold = Hold::take(m.0.path(), "net-1-ipv6", switches()).unwrap();
        assert_eq!(read(&switches().path(ALL)).unwrap(), "1");
        // The kernel sets each interface when the global switch is written, now and at the end.
        ["default", "eth0", "lo"].iter().for_each(|i| m.set(i, "0"));
        drop(hold);
        assert_eq!(m.values(), "all 0 default 0 eth0 0 lo 1");
    }
}
