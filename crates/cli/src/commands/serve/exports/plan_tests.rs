//! Names, and what is refused.

use std::os::unix::ffi::OsStrExt;

use clap::Parser;

use super::*;
use crate::commands::serve::exports::open_exports;
use crate::commands::serve::keys::Keys;
use crate::commands::{Cli, Command};
use crate::output::exit::Result;

fn args(line: &[&str]) -> Serve {
    match Cli::try_parse_from([&["remora", "serve"], line].concat()).unwrap().command {
        Command::Serve(args) => *args,
        other => panic!("{other:?}"),
    }
}

fn shares(line: &[&str]) -> Result<Vec<Share>> {
    plan(&args(line), Pipes::Read).map(|p| p.shares)
}

#[test]
fn shares_have_the_names_people_expect() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for sub in ["a", "b", "b/a"] {
        std::fs::create_dir(root.join(sub)).unwrap();
    }
    let path = |sub: &str| root.join(sub).to_str().unwrap().to_owned();
    let names = |line: &[&str]| shares(line).unwrap().into_iter().map(|s| s.names).collect::<Vec<_>>();
    assert_eq!(names(&[&path("a")]), [[path("a"), "/a".into(), "/".into()]]);
    assert_eq!(names(&[&path("a"), &path("b")]), [[path("a"), "/a".into()], [path("b"), "/b".into()]]);
    assert_eq!(names(&[&path("a"), &path("b/a")]), [[path("a")], [path("b/a")]]);
    let given = |line: &[&str]| shares(line).unwrap().into_iter().map(|s| (s.names, s.unlisted)).collect::<Vec<_>>();
    let x = format!("x={}", path("a"));
    assert_eq!(given(&["--export", &x]), [(vec!["/x".into()], vec!["/".into()])], "the name it was given is told");
    let both = given(&["--export", &x, &path("b")]);
    assert_eq!(both, [(vec![path("b"), "/b".into()], vec![]), (vec!["/x".into()], vec![])]);
    assert_eq!(given(&["--export", &format!("/={}", path("a"))]), [(vec!["/".into()], vec![])]);
    assert_eq!(names(&["/"]), [["/"]]);

    let file = path("exports");
    std::fs::write(&file, format!("{} *\n", path("a"))).unwrap();
    assert_eq!(names(&["--exports", &file]), [[path("a")]], "as on Linux, by its path");
    let table = |dir: &str, more: &str| format!("[[export]]\npath = \"{dir}\"\n{more}\n");
    std::fs::write(&file, table(&path("a"), "")).unwrap();
    let toml = ["--exports", &file, "--exports-format", "toml"];
    assert_eq!(names(&toml), [[path("a"), "/a".into(), "/".into()]]);
    std::fs::write(&file, table(&path("a"), "") + &table(&path("b"), "names = [\"/a\"]")).unwrap();
    assert_eq!(names(&toml), [vec![path("a")], vec!["/a".into()]], "a name that was given beats one that was not");
    std::fs::write(&file, table(&path("a"), "names = [\"/x\"]") + &table(&path("b"), "names = [\"/x\"]")).unwrap();
    assert_eq!(shares(&toml).unwrap_err().to_string(), format!("{file}:4: '/x' is exported twice"));
}

#[test]
fn alias_yields_to_another_spelling_of_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let path = |sub: &str| root.join(sub).to_str().unwrap().to_owned();
    for sub in ["photos", "x"] {
        std::fs::create_dir(path(sub)).unwrap();
    }
    let names = |line: &[&str]| {
        let plan = plan(&args(line), Pipes::Read).unwrap();
        let loaded = open_exports::open(plan, &Keys::default(), None).map_err(|e| e.to_string()).unwrap();
        loaded.plan.shares.into_iter().map(|s| s.names).collect::<Vec<_>>()
    };
    for name in ["/photos", "/photos/", "//photos", "/./photos"] {
        let export = format!("{name}={}", path("x"));
        assert_eq!(names(&[&path("photos"), "--export", &export]), [[path("photos")], [name.to_owned()]], "{name}");
    }
}

#[test]
fn a_share_has_no_name_twice_in_two_spellings() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("exports.toml");
    std::fs::write(&file, "[[export]]\npath = \"/usr/\"\n").unwrap();
    assert_eq!(shares(&["--exports", file.to_str().unwrap()]).unwrap().remove(0).names, ["/usr/", "/"]);
}

#[test]
fn export_with_another_spelling_of_its_name_is_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let load = |name: &str, before: Option<&open_exports::Loaded>| {
        let export = format!("{name}={}", dir.path().display());
        open_exports::open(plan(&args(&["--export", &export]), Pipes::Read).unwrap(), &Keys::default(), before)
            .ok()
            .unwrap()
    };
    let first = load("/x/", None);
    let next = load("//x", Some(&first));
    let changes = crate::commands::serve::exports::export_list::Changes::between(&first, &next);
    assert_eq!(changes.to_string(), "changed //x; 0 as before");
    let other = load("/y", Some(&next));
    let changes = crate::commands::serve::exports::export_list::Changes::between(&next, &other);
    assert_eq!(changes.to_string(), "added /y; removed //x; 0 as before");
}

#[test]
fn wrong_export_name_error_names_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let (a, file) = (dir.path().to_str().unwrap(), dir.path().join("exports.toml"));
    let path = file.to_str().unwrap();
    for (names, why) in [
        (r#""/b", "/x/""#, "'/x/' is exported twice".to_owned()),
        (r#""x""#, "'x' cannot be an export's name: it must begin with '/'".into()),
        (r#""/a\nb""#, format!("{a}: its name contains control characters")),
        (r#""/a\u0000""#, format!("{a}: its name contains control characters")),
    ] {
        let text =
            format!("[[export]]\npath = \"{a}\"\nnames = [\"/x\"]\n[[export]]\npath = \"{a}\"\nnames = [{names}]\n");
        std::fs::write(&file, text).unwrap();
        let plan = super::plan(&args(&["--exports", path]), Pipes::Read);
        let error = plan.and_then(|plan| open_exports::open(plan, &Keys::default(), None)).err().map(|e| e.to_string());
        let error = error.unwrap_or_default();
        assert!(error.starts_with(&format!("{path}:4: {why}")), "{error}");
    }
}

#[test]
fn export_name_is_verbatim_and_directory_is_resolved() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("disk")).unwrap();
    std::os::unix::fs::symlink("disk", root.join("srv")).unwrap();
    let (file, srv) = (root.join("exports"), root.join("srv"));
    std::fs::write(&file, format!("{} *\n", srv.display())).unwrap();
    let share = shares(&["--exports", file.to_str().unwrap()]).unwrap().remove(0);
    assert_eq!((share.dir, share.names), (root.join("disk"), vec![srv.to_str().unwrap().to_owned()]));
}

#[test]
fn wrong_directories_are_refused() {
    let missing = shares(&["/nonexistent"]).unwrap_err();
    assert_eq!((missing.code(), missing.to_string().as_str()), (1, "/nonexistent: no such file or directory"));
    assert_eq!(shares(&["/dev/null"]).unwrap_err().code(), 1);
    assert_eq!(shares(&[]).unwrap_err().code(), 2);
    assert_eq!(shares(&["--export", "x"]).unwrap_err().code(), 2);
}

#[test]
fn wrong_exports_file_error_names_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("exports");
    let path = file.to_str().unwrap();
    for (text, why) in [
        (&b"# nothing\n"[..], format!("nothing to share in {path}")),
        (b"/nonexistent *\n", format!("{path}:1: /nonexistent: no such file or directory")),
        (b"\n/dev/null *\n", format!("{path}:2: /dev/null is not a directory")),
        (
            b"/ *(async)\n",
            format!("{path}:1: 'async' is refused: what a client was told to be on stable storage is there"),
        ),
        (b"/ \xff\n", format!("{path}: is not UTF-8 text")),
        (&[b'#'; 1 + (1 << 20)], format!("{path}: is too large for an exports file")),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = shares(&["--exports", path]).unwrap_err();
        assert_eq!((error.code(), error.to_string()), (2, why));
    }
    let toml = dir.path().join("exports.toml");
    std::fs::write(&toml, "[[export]]\npath = \"srv\"\n").unwrap();
    let path = toml.to_str().unwrap();
    let relative = shares(&["--exports", path]).unwrap_err().to_string();
    assert_eq!(relative, format!("{path}:1: 'srv' is not an absolute path"));
}

#[test]
fn flags_about_terms_are_for_directories_alone() {
    for flag in [&["--read-only"][..], &["--squash", "all"], &["--allow", "10.0.0.0/8"], &["--secure"]] {
        let line = [&["remora", "serve", "--exports", "f"], flag].concat();
        assert!(Cli::try_parse_from(line).is_err(), "{flag:?}");
    }
    let access = shares(&["/", "--read-only", "--squash", "none", "--allow", "10.0.0.1"]).unwrap().remove(0).access;
    let terms = Terms { read_only: true, squash: remora_server::Squash::None, ..Terms::default() };
    assert_eq!(access, Access::of(["10.0.0.1".parse().unwrap()], terms).unwrap());
    let access = shares(&["/", "--secure"]).unwrap().remove(0).access;
    assert_eq!(access, Access::everybody(Terms { secure: true, ..Terms::default() }));
}

#[test]
fn a_directory_whose_path_is_no_text_is_shared_by_a_name() {
    let top = tempfile::tempdir().unwrap();
    let dir = top.path().canonicalize().unwrap().join(OsStr::from_bytes(b"d\xff=x"));
    std::fs::create_dir(&dir).unwrap();
    let plan = |words: &[&OsStr]| {
        let line = [OsStr::new("remora"), OsStr::new("serve")].into_iter().chain(words.iter().copied());
        match Cli::try_parse_from(line).unwrap().command {
            Command::Serve(args) => super::plan(&args, Pipes::Read).map(|p| p.shares),
            other => panic!("{other:?}"),
        }
    };
    let told = plan(&[dir.as_os_str()]).unwrap_err().to_string();
    assert!(told.contains("--export NAME=DIR"), "{told}");
    let named = [b"x=", dir.as_os_str().as_bytes()].concat();
    let share = plan(&[OsStr::new("--export"), OsStr::from_bytes(&named)]).unwrap().remove(0);
    assert_eq!((&share.dir, share.paths().map(String::as_str).collect::<Vec<_>>()), (&dir, vec!["/x", "/"]));
    assert!(serde_json::to_string(&crate::commands::serve::exports::export_list::views(&[share])).is_ok());
    let wrong = plan(&[OsStr::new("--export"), OsStr::from_bytes(b"\xff=/")]).unwrap_err();
    assert!(wrong.to_string().contains("the name is not UTF-8"), "{wrong}");
}

#[test]
fn nested_exports_are_noted() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("a/in")).unwrap();
    std::fs::create_dir(root.join("ab")).unwrap();
    let file = root.join("exports");
    let path = |sub: &str| root.join(sub).display().to_string();
    let noted = |rules: &[(&str, &str)]| {
        let lines: String = rules.iter().map(|(sub, clients)| format!("{} {clients}\n", path(sub))).collect();
        std::fs::write(&file, lines).unwrap();
        plan(&args(&["--exports", file.to_str().unwrap()]), Pipes::Read).unwrap().notes
    };
    let open = format!("{} is inside {}: clients of", path("a/in"), path("a"));
    for rules in [&[("a", "*(rw)"), ("a/in", "10.0.0.1(rw)")], &[("a/in", "*(ro)"), ("a", "*(rw)")]] {
        let notes = noted(rules);
        assert!(notes.len() == 1 && notes[0].starts_with(&open), "{notes:?}");
    }
    std::os::unix::fs::symlink("a", root.join("l")).unwrap();
    let one = format!(
        "{} and {} are the same directory: each export allows what the other one forbids",
        path("l"),
        path("a")
    );
    assert_eq!(noted(&[("l", "*(rw)"), ("a", "*(ro)")]), [one]);
    let none: [String; 0] = [];
    assert_eq!(noted(&[("l", "*(rw)"), ("a", "*(rw)")]), none, "by two names");
    assert_eq!(noted(&[("a", "*(rw)"), ("a/in", "*(rw)")]), none, "on the same terms");
    assert_eq!(noted(&[("a", "*(rw)"), ("ab", "10.0.0.1(rw)")]), none, "beside it");
}

/// A rule for everybody, on terms that these change.
fn shared(change: impl Fn(&mut Terms)) -> Vec<Share> {
    let mut shares = shares(&["/"]).unwrap();
    let mut terms = Terms::default();
    change(&mut terms);
    shares[0].access = Access::everybody(terms);
    shares
}

#[test]
fn squash_notes_name_user_and_flag() {
    use remora_server::Squash;
    let of = |squash| warnings::of_squash(&shared(|terms| terms.squash = squash));
    assert_eq!(of(Squash::None), [""; 0]);
    let root = "root's requests run as user 65534 (root squashing); use --squash none to run them as root";
    assert_eq!(of(Squash::Root), [root]);
    let all = "all requests run as user 65534; use --squash root to run each as its own user";
    assert_eq!(of(Squash::All), [all]);
    let mut from_file = shared(|terms| terms.anon_uid = 7);
    from_file[0].place = Some(("/etc/exports".into(), 1));
    assert!(warnings::of_squash(&from_file)[0].contains("user 7 (root squashing); use no_root_squash to"));
}

#[test]
fn uid_claim_note_depends_on_ports_and_squashing() {
    use crate::commands::serve::output::announcement::claims;
    use remora_server::Squash;
    use rustix::process::Uid;
    let (root, user) = (Uid::ROOT, Uid::from_raw(1000));
    let here = ["127.0.0.1:2049".parse().unwrap()];
    let told = |shares: &[Share], user| claims(&here, shares, user).unwrap_or_default();
    let open = shared(|_| {});
    assert!(told(&open, root).starts_with("any local user can claim any uid; --secure requires client ports"));
    assert!(told(&open, user).starts_with("any local user can use these files as user 1000; --secure"));
    assert!(claims(&["[::]:2049".parse().unwrap()], &open, root).is_some());
    assert_eq!(claims(&["192.0.2.1:2049".parse().unwrap()], &open, root), None, "not on this address");
    let (secure, all) = (shared(|terms| terms.secure = true), shared(|terms| terms.squash = Squash::All));
    assert_eq!([told(&secure, root), told(&secure, user), told(&all, root)], ["", "", ""]);
    assert!(!told(&all, user).is_empty(), "everybody is that user");
}
