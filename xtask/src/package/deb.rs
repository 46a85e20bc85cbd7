//! The Debian package, made by dpkg's own programs from `packaging/` and from the pages that the program generates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cmd::{self, Build, Result};
use crate::test;

/// Files and directories of the project, and the directory of the package that gets them or their contents.
const FILES: [(&str, &str); 9] = [
    ("packaging/sbin", "usr/sbin"),
    ("packaging/systemd", "usr/lib/systemd/system"),
    ("packaging/sysusers.d", "usr/lib/sysusers.d"),
    ("packaging/config", CONFIG),
    ("packaging/examples", "usr/share/doc/remora/examples"),
    ("packaging/debian/copyright", "usr/share/doc/remora"),
    ("README.md", "usr/share/doc/remora"),
    ("LICENSE-APACHE", "usr/share/doc/remora"),
    ("LICENSE-MIT", "usr/share/doc/remora"),
];
/// The same for what `remora generate` writes.
const GENERATED: [(&str, &str); 4] = [
    ("man/man1", "usr/share/man/man1"),
    ("bash-completion/completions", "usr/share/bash-completion/completions"),
    ("zsh/site-functions", "usr/share/zsh/vendor-completions"),
    ("fish/vendor_completions.d", "usr/share/fish/vendor_completions.d"),
];
/// The directory of files that an upgrade keeps if they were edited.
const CONFIG: &str = "etc/remora";
/// Scripts of the package (deb-postinst(5) and its neighbours).
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// The program in the package.
const PROGRAM: &str = "usr/bin/remora";

/// Builds the program and packages it. Returns the package's path.
pub(super) fn build(build: Build) -> Result<PathBuf> {
    if cmd::find("dpkg-shlibdeps").is_none() {
        test::install(&["dpkg-dev"])?;
    }
    let target = cmd::target_dir()?;
    let program = match build {
        Build::Debug => cmd::built("remora", Build::Debug)?,
        Build::Release => {
            cmd::run(&mut cmd::cargo(&["build", "--profile", "dist", "--package", "remora-cli"]))?;
            target.join("dist/remora")
        }
    };
    let package = target.join("package/remora.deb");
    fs::create_dir_all(target.join("package"))?;
    let scratch = tempfile::tempdir_in(target.join("package"))?;
    let tree = scratch.path().join("remora");
    fill(&tree, &program, &scratch.path().join("share"))?;
    let debian = Debian::new(scratch.path())?;
    if matches!(build, Build::Release) {
        let symbols = scratch.path().join("symbols");
        split_symbols(&tree.join(PROGRAM), &symbols)?;
        debian.pack("remora-dbgsym", &symbols, &target.join("package/remora-dbgsym.deb"), "xz")?;
    }
    debian.note_libraries(&tree.join(PROGRAM))?;
    // A debug build is large, and only this machine reads it.
    debian.pack("remora", &tree, &package, if matches!(build, Build::Debug) { "none" } else { "xz" })?;
    println!("{}: {:.1} MB", package.display(), fs::metadata(&package)?.len() as f64 / 1e6);
    Ok(package)
}

/// Copies the files of the package to `tree`. `share` gets what the program generates.
fn fill(tree: &Path, program: &Path, share: &Path) -> Result {
    cmd::run(Command::new(program).arg("generate").arg(share))?;
    let project = FILES.iter().map(|(from, to)| (cmd::root().join(from), *to));
    for (from, to) in project.chain(GENERATED.iter().map(|(from, to)| (share.join(from), *to))) {
        let to = tree.join(to);
        fs::create_dir_all(&to)?;
        let from = if from.is_dir() { from.join(".") } else { from };
        cmd::run(Command::new("cp").args(["--recursive", "--no-dereference"]).args([from, to]))?;
    }
    fs::copy(cmd::root().join("CHANGELOG.md"), tree.join("usr/share/doc/remora/changelog"))?;
    fs::create_dir_all(tree.join("usr/bin"))?;
    fs::copy(program, tree.join(PROGRAM))?;
    let control = tree.join("DEBIAN");
    fs::create_dir(&control)?;
    for script in SCRIPTS {
        fs::copy(cmd::root().join("packaging/debian").join(script), control.join(script))?;
    }
    let mut kept: Vec<PathBuf> = fs::read_dir(tree.join(CONFIG))?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    kept.sort();
    let line = |path: &PathBuf| Ok(format!("/{}\n", path.strip_prefix(tree)?.display()));
    fs::write(control.join("conffiles"), kept.iter().map(line).collect::<Result<String>>()?)?;
    // Whatever the umask is, and the permissions in the repository.
    cmd::run(Command::new("chmod").args(["--recursive", "u=rwX,go=rX"]).arg(tree))
}

/// Moves the debug symbols of `program` to a tree of their own, where debuggers look for them.
fn split_symbols(program: &Path, tree: &Path) -> Result {
    let notes = Command::new("readelf").arg("--notes").arg(program).output()?;
    let notes = String::from_utf8_lossy(&notes.stdout);
    let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).ok_or("no build id")?;
    let (head, rest) = id.split_at_checked(2).ok_or("a build id that is too short")?;
    let dir = tree.join("usr/lib/debug/.build-id").join(head);
    fs::create_dir_all(&dir)?;
    let file = dir.join(format!("{rest}.debug"));
    fs::create_dir(tree.join("DEBIAN"))?;
    let objcopy = |options: &[&str], to: &Path| cmd::run(Command::new("objcopy").args(options).arg(program).arg(to));
    objcopy(&["--only-keep-debug", "--compress-debug-sections"], &file)?;
    objcopy(&["--strip-unneeded"], program)
}

/// A directory with `debian/`, where dpkg's programs run.
struct Debian<'a>(&'a Path);

impl Debian<'_> {
    fn new(place: &Path) -> Result<Debian<'_>> {
        let debian = place.join("debian");
        fs::create_dir(&debian)?;
        fs::copy(cmd::root().join("packaging/debian/control"), debian.join("control"))?;
        let version = env!("CARGO_PKG_VERSION");
        let entry = format!(
            "remora ({version}-1) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n \
             -- The Remora project <remora@localhost>  Thu, 01 Jan 1970 00:00:00 +0000\n"
        );
        fs::write(debian.join("changelog"), entry)?;
        Ok(Debian(place))
    }

    /// Notes the packages of the libraries that `program` needs.
    fn note_libraries(&self, program: &Path) -> Result {
        cmd::run(Command::new("dpkg-shlibdeps").arg(program).current_dir(self.0))
    }

    /// Makes the package `name` from `tree`.
    fn pack(&self, name: &str, tree: &Path, package: &Path, compression: &str) -> Result {
        let mut control = Command::new("dpkg-gencontrol");
        cmd::run(control.arg(format!("-p{name}")).arg(format!("-P{}", tree.display())).current_dir(self.0))?;
        let mut deb = Command::new("dpkg-deb");
        deb.args(["--root-owner-group", &format!("-Z{compression}"), "--build"]).args([tree, package]);
        cmd::run(deb.stdout(Stdio::null()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_found_by_the_build_id() {
        let scratch = tempfile::tempdir().unwrap();
        let (program, symbols) = (scratch.path().join("program"), scratch.path().join("symbols"));
        let source = scratch.path().join("program.c");
        fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let mut cc = Command::new("cc");
        cmd::run(cc.args(["-g", "-Wl,--build-id=0x0123456789abcdef", "-o"]).args([&program, &source])).unwrap();
        split_symbols(&program, &symbols).unwrap();
        let sections = |file: &Path| {
            let listed = Command::new("readelf").args(["--sections", "--wide"]).arg(file).output().unwrap();
            String::from_utf8(listed.stdout).unwrap()
        };
        assert!(sections(&symbols.join("usr/lib/debug/.build-id/01/23456789abcdef.debug")).contains(".debug_info"));
        assert!(!sections(&program).contains(".debug_info"));
        cmd::run(&mut Command::new(&program)).unwrap();
    }
}
