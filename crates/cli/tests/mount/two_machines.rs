//! Two machines mount one export, work without the server, then meet again.
//!
//! Each has a git repository of its own, and both commit to a shared one. With `REMORA_MOUNT_LONG=1` each makes 5,000 files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::Place;
use crate::kit::{Mount, Site, is_long, promptly};
use crate::offline::{Found, go_offline, go_online, tree, until_sent};

/// Fills a machine's directory, on the server.
const PREPARE: &str = r#"
mkdir "$1" && cd "$1"
git init -q -b main repository && cd repository
for n in 1 2 3 4 5 6 7 8; do seq $((n * 100)) > file$n; done
mkdir letters && for n in 1 2 3; do echo "letter $n" > letters/$n; done
git add . && git commit -q -m start
cd ..
mkdir old && for n in 1 2 3 4 5 6 7 8 9; do mkdir old/$n && echo $n > old/$n/file; done
head -c 300000 /dev/urandom > report.odt
mkdir program && cd program
printf 'int part(void);\nint main(void) { return part(); }\n' > main.c
printf 'int part(void) { return 0; }\n' > part.c
printf 'program: main.o part.o\n\tcc -o $@ main.o part.o\n%%.o: %%.c\n\tcc -c $<\n' > Makefile
"#;

/// A day's work, in a machine's own directory.
const WORK: &str = r#"
cd "$1/repository"
echo more >> file1 && git commit -q -a -m more
git checkout -q -b side && echo side > side && git add side && git commit -q -m side
git checkout -q main && echo main > main && git add main && git commit -q -m main
git checkout -q side && git rebase -q main
git mv letters post && echo changed >> post/1 && git commit -q -a -m post
cd ..
head -c 310000 /dev/urandom > report.tmp && sync report.tmp && mv report.tmp report.odt
echo changed > old/1/file && mv old/1 moved
make -s -C program && program/program
rm -rf old
mkdir many && cd many && seq "$2" | xargs touch
"#;

/// A commit to the shared repository. Prints its number.
const SHARE: &str = r#"
cd shared && echo "by $1" > "by-$1" && echo "$1" >> file1
git add . && git commit -q -m "by $1" && git rev-parse HEAD
"#;

/// A machine with a mount.
struct Machine {
    name: &'static str,
    place: Place,
    mount: Mount,
}

/// Runs a script in `dir`; returns what it printed.
#[track_caller]
fn run(dir: &Path, script: &str, args: &[&str]) -> String {
    let mut command = Command::new("sh");
    command.args(["-euc", script, "sh"]).args(args).current_dir(dir).stdin(Stdio::null());
    command.envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@example")]);
    command.envs([("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a@example"), ("GIT_EDITOR", "true")]);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{args:?} in {}: {}", dir.display(), String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

impl Machine {
    /// A machine that knows all of the export.
    fn new(site: &mut Site, name: &'static str) -> Machine {
        let place = Place::new();
        let dir = place.here("mnt");
        fs::create_dir(&dir).unwrap();
        site.adopt(&dir);
        let machine = Machine { name, place, mount: Mount { dir } };
        machine.mount(site, "relaxed");
        tree(&machine.mount.dir);
        machine
    }

    fn mount(&self, site: &Site, cache: &str) {
        self.place.ok(&["mount", &site.server.url("/"), self.mount.path(), "--cache", cache]);
    }

    /// Works without the server. Returns the tree of its own directory, and its commit to the shared repository.
    fn work(&self) -> (BTreeMap<String, Found>, String) {
        // Without the server a file is writable if that is known.
        run(&self.mount.dir, "find . -type f -exec sh -c ': >> \"$1\"' sh {} \\;", &[]);
        go_offline(&self.place, &self.mount);
        let (dir, name, files) = (self.mount.dir.clone(), self.name, if is_long() { "5000" } else { "200" });
        run(&dir, WORK, &[name, files]);
        let commit = run(&dir, SHARE, &[name]);
        (promptly("a tree without the server", move || tree(&dir.join(name))), commit)
    }

    fn meet(&self) {
        go_online(&self.place, &self.mount);
        until_sent(&self.place, &self.mount);
    }

    fn conflicts(&self) -> Vec<Value> {
        let listed = self.place.ok(&["conflicts", "--json", self.mount.path()]);
        listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[test]
fn two_machines_work_offline_and_lose_nothing() {
    let Some(mut site) = Site::new() else { return };
    let export = site.place.srv("");
    ["first", "second"].iter().for_each(|name| _ = run(&export, PREPARE, &[name]));
    run(&export, "git clone -q first/repository shared", &[]);
    let machines = ["first", "second"].map(|name| Machine::new(&mut site, name));
    let worked = [&machines[0], &machines[1]].map(Machine::work);
    machines.iter().for_each(Machine::meet);
    for (machine, (own, commit)) in machines.iter().zip(&worked) {
        let there = tree(&export.join(machine.name));
        let differs = |path: &&String| own.get(*path) != there.get(*path);
        let different: Vec<&String> = own.keys().chain(there.keys()).filter(differs).collect();
        assert_eq!(different, [""; 0], "the server has another tree of {}", machine.name);
        run(&export, "cd \"$1/repository\" && git fsck --strict && git status", &[machine.name]);
        run(&export, "cd shared && git cat-file -e \"$1^{tree}\" && git fsck --connectivity-only \"$1\"", &[commit]);
    }
    assert_eq!(machines[0].conflicts(), Vec::<Value>::new(), "nobody else had changed anything");
    let conflicts = machines[1].conflicts();
    let [theirs, ours] = worked.map(|(_, commit)| commit);
    let head = conflicts.iter().find(|conflict| conflict["path"] == "/shared/.git/refs/heads/main");
    let copy = head.and_then(|conflict| conflict["copy"].as_str()).unwrap_or_else(|| panic!("in {conflicts:?}"));
    let read = |path: &str| fs::read_to_string(export.join(path.trim_start_matches('/'))).unwrap();
    assert_eq!([read("/shared/.git/refs/heads/main"), read(copy)].map(|id| id.trim().to_owned()), [theirs, ours]);
    for conflict in &conflicts {
        let path = conflict["path"].as_str().unwrap();
        assert!(path.starts_with("/shared/"), "only there both changed something: {conflict}");
    }
    let server = tree(&export);
    for machine in &machines {
        machine.place.ok(&["umount", machine.mount.path()]);
        machine.mount(&site, "strict");
        assert!(tree(&machine.mount.dir) == server, "{} sees another tree than the server", machine.name);
    }
}
