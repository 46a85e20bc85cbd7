//! What is said on a terminal.

use std::fs;
use std::process::{Command, Stdio};

use crate::common::{Place, Running, noise};

/// `args`, run by the shell on a terminal of this kind; what it says there is its standard output.
fn on_terminal(p: &Place, kind: &str, args: &[&str]) -> Running {
    let cp = p.command(args);
    let words = std::iter::once(cp.get_program()).chain(cp.get_args()).map(|word| format!("'{}'", word.display()));
    let mut script = Command::new("script");
    script.args(["-qec", &words.collect::<Vec<_>>().join(" "), "/dev/null"]).env("TERM", kind);
    script.current_dir(p.here("")).env("XDG_STATE_HOME", p.state());
    script.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(script)
}

/// A dumb one shows no bar, so lines say what it would.
#[test]
fn dumb_terminal_shows_stall_and_end() {
    if Command::new("script").arg("--version").output().is_err() {
        return skip::skipped("dumb_terminal_shows_stall_and_end", "script is not installed");
    }
    let p = Place::new();
    fs::write(p.srv("f"), noise(300_000, 1)).unwrap();
    let s = p.serve(&[]);
    // Some 2.4 s.
    let relay = p.relay_at(0, &s, &["--rate", "1Mbit", "--duplex", "full", "--queue", "1000"]);
    for (kind, bar, quiet) in [("dumb", false, false), ("xterm", true, false), ("dumb", false, true)] {
        let url = relay.udp_url("/f");
        let flags: &[&str] = if quiet { &["cp", "-q"] } else { &["cp"] };
        let out = on_terminal(&p, kind, &[flags, &[&url, "f"]].concat()).finish();
        assert_eq!(out.code, 0, "{out:?}");
        assert_eq!(out.stdout.contains("300 kB of 300 kB") || out.stdout.contains(" left"), bar, "{kind}: {out:?}");
        assert_eq!(out.stdout.contains("300 kB in "), !quiet, "{kind}: {out:?}");
    }
    s.signal("STOP");
    for (kind, says) in [("dumb", true), ("xterm", false)] {
        let out = on_terminal(&p, kind, &["cp", "--timeout", "5", &s.udp_url("/f"), "g"]).finish();
        assert_eq!((out.code, out.stdout.contains("is not mounted after 3 s")), (3, says), "{kind}: {out:?}");
    }
}

/// What it shows while a tree is copied over a slow link.
#[test]
fn bar_of_a_tree_counts_files_and_names_its_phases() {
    let name = "bar_of_a_tree_counts_files_and_names_its_phases";
    if Command::new("script").arg("--version").output().is_err() {
        return skip::skipped(name, "script is not installed");
    }
    let p = Place::new();
    for dir in ["a", "b"] {
        fs::create_dir_all(p.here(&format!("tree/{dir}"))).unwrap();
        fs::write(p.here(&format!("tree/{dir}/f")), noise(150_000, 1)).unwrap();
    }
    let s = p.serve(&[]);
    // Some 1.2 s for each 150 kB.
    let relay = p.relay_at(0, &s, &["--rate", "1Mbit", "--duplex", "full", "--queue", "1000"]);
    let out = on_terminal(&p, "xterm", &["cp", "-r", "--verify", "tree", &relay.udp_url("/tree")]).finish();
    assert_eq!(out.code, 0, "{out:?}");
    for words in ["of 300 kB", " of 2 files, ", " of 300 kB compared", " s left"] {
        assert!(out.stdout.contains(words), "no '{words}': {out:?}");
    }
    assert!(!out.stdout.contains(&"█".repeat(30)), "a full bar: {out:?}");
}
