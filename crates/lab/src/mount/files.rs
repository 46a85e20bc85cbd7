//! The files of a work: on the server before it is mounted, and on the mobile.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use remora_base::Rng;

use super::work::{BULK, DOCUMENT, DOCUMENTS, LARGE, Work};

/// Directories of the tree and files in each.
const TREE: (usize, usize) = (50, 40);
/// Files in the archive.
const ARCHIVED: usize = 200;
/// Lengths of small files in bytes.
const SMALL: std::ops::RangeInclusive<u64> = 50..=400;
/// C files of the project besides its main file.
const MODULES: usize = 10;
/// Age of files that a program finds unchanged for long.
const AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Creates what `work` needs in `server`, the exported directory, and in `local`. A seed gives the same files.
pub(super) fn prepare(work: Work, seed: u64, server: &Path, local: &Path) -> io::Result<()> {
    let mut rng = Rng::stream(seed, "mount work");
    match work {
        Work::List => tree(&server.join("tree"), &mut rng),
        Work::GitStatus => repository(&server.join("repository"), &mut rng),
        Work::Read => write(&server.join("large"), LARGE, &mut rng),
        Work::Write => write(&local.join("large"), LARGE, &mut rng),
        Work::Save => {
            write(&server.join("letter"), DOCUMENT, &mut rng)?;
            write(&local.join("document"), DOCUMENT, &mut rng)
        }
        Work::Untar => archive(server, local, &mut rng),
        Work::Make => project(&server.join("project")),
        Work::Beside => {
            for name in ["documents", "notes"] {
                fs::create_dir(server.join(name))?;
            }
            for number in 1..=DOCUMENTS {
                write(&server.join("documents").join(number.to_string()), DOCUMENT, &mut rng)?;
            }
            write(&local.join("bulk"), BULK, &mut rng)
        }
    }
}

fn write(path: &Path, bytes: u64, rng: &mut Rng) -> io::Result<()> {
    let mut content = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    rng.fill(&mut content);
    fs::write(path, content)?;
    age(path)
}

fn write_small(path: &Path, rng: &mut Rng) -> io::Result<()> {
    let bytes = SMALL.start() + rng.below(SMALL.end() - SMALL.start() + 1);
    write(path, bytes, rng)
}

/// Makes a file look old, so that no program takes it for one that is just being changed.
fn age(path: &Path) -> io::Result<()> {
    File::options().append(true).open(path)?.set_modified(SystemTime::now() - AGE)
}

fn tree(root: &Path, rng: &mut Rng) -> io::Result<()> {
    for directory in 0..TREE.0 {
        let directory = root.join(format!("d-{directory:02}"));
        fs::create_dir_all(&directory)?;
        for file in 0..TREE.1 {
            write_small(&directory.join(format!("f-{file:02}.txt")), rng)?;
        }
    }
    Ok(())
}

/// A repository with one commit, whose files were touched afterwards: git reads each of them again.
fn repository(root: &Path, rng: &mut Rng) -> io::Result<()> {
    tree(root, rng)?;
    let git = |words: &[&str]| {
        let who = ["-c", "user.name=lab", "-c", "user.email=lab@localhost", "-c", "gc.auto=0"];
        program(Command::new("git").arg("-C").arg(root).args(who).args(words))
    };
    git(&["init", "-q", "--template=", "."])?;
    git(&["add", "-A"])?;
    git(&["commit", "-q", "-m", "files"])?;
    git(&["repack", "-q", "-a", "-d"])?;
    for directory in 0..TREE.0 {
        for file in 0..TREE.1 {
            let path = root.join(format!("d-{directory:02}/f-{file:02}.txt"));
            File::options().append(true).open(path)?.set_modified(SystemTime::now() - AGE / 2)?;
        }
    }
    Ok(())
}

fn archive(server: &Path, local: &Path, rng: &mut Rng) -> io::Result<()> {
    fs::create_dir(server.join("unpacked"))?;
    let names: Vec<String> = (0..ARCHIVED).map(|number| format!("f-{number}")).collect();
    for name in &names {
        write_small(&local.join(name), rng)?;
    }
    program(Command::new("tar").arg("-C").arg(local).arg("-cf").arg(local.join("files.tar")).args(&names))
}

fn project(root: &Path) -> io::Result<()> {
    fs::create_dir(root)?;
    let module = |n: usize| format!("#include \"all.h\"\n\nint f{n}(int x)\n{{\n\treturn x * {n} + 1;\n}}\n");
    let (mut header, mut calls, mut objects) = (String::new(), String::new(), String::from("main.o"));
    for n in 0..MODULES {
        fs::write(root.join(format!("m{n}.c")), module(n))?;
        header += &format!("int f{n}(int x);\n");
        calls += &format!("\tx = f{n}(x);\n");
        objects += &format!(" m{n}.o");
    }
    fs::write(root.join("all.h"), header)?;
    let main = format!("#include \"all.h\"\n\nint main(void)\n{{\n\tint x = 1;\n{calls}\treturn x == 0;\n}}\n");
    fs::write(root.join("main.c"), main)?;
    let rules = format!("OBJECTS = {objects}\n\nprogram: $(OBJECTS)\n\tgcc -o $@ $(OBJECTS)\n\n");
    fs::write(root.join("Makefile"), rules + "%.o: %.c all.h\n\tgcc -O1 -c -o $@ $<\n")?;
    for entry in fs::read_dir(root)? {
        age(&entry?.path())?;
    }
    Ok(())
}

fn program(command: &mut Command) -> io::Result<()> {
    let output = command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").output()?;
    if output.status.success() {
        return Ok(());
    }
    let name = command.get_program().to_string_lossy().into_owned();
    Err(io::Error::other(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}
