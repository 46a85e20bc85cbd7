//! `remora serve --atp` and `proto=atp`: trees both ways, a server that is killed in the middle,
//! keys that do not fit.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::common::{Daemon, Place, noise, until};

const SIZE: usize = 3 << 20;

/// Shares `srv` over ATP, too, and says how to name it there.
fn serve(p: &Place, port: u16, atp: &str, args: &[&str]) -> (Daemon, String, String) {
    let daemon = p.serve_at(port, &[&["--atp", atp], args].concat());
    let (at, key) = (daemon.ready["atp"]["listen"].as_str().unwrap(), daemon.ready["atp"]["key"].as_str().unwrap());
    let (at, key) = (at.to_owned(), key.to_owned());
    (daemon, at, key)
}

fn url(at: &str, key: &str, path: &str) -> String {
    format!("nfs://{at}{path}?proto=atp&key={key}")
}

fn plant(root: &Path) {
    fs::create_dir_all(root.join("a/b")).unwrap();
    for (name, len) in [("f", 0), ("a/g", 1), ("a/b/h", 100_000), ("a/b/i", 1 << 20)] {
        fs::write(root.join(name), noise(len, 1)).unwrap();
    }
}

fn same(one: &Path, other: &Path) {
    for name in ["f", "a/g", "a/b/h", "a/b/i"] {
        assert!(fs::read(one.join(name)).unwrap() == fs::read(other.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn trees_go_both_ways_and_the_other_protocols_see_them() {
    let p = Place::new();
    plant(&p.here("tree"));
    let (daemon, at, key) = serve(&p, 0, "127.0.0.1:0", &[]);
    p.ok(&["cp", "-r", "tree", &url(&at, &key, "/up")]);
    same(&p.here("tree"), &p.srv("up"));
    p.ok(&["cp", "-r", &url(&at, &key, "/up"), "back"]);
    same(&p.here("tree"), &p.here("back"));
    let list = p.ok(&["ls", &url(&at, &key, "/up")]);
    assert_eq!(list, p.ok(&["ls", &daemon.url("/up?proto=tcp")]));
    assert_eq!(list, p.ok(&["ls", &daemon.udp_url("/up")]));
}

#[test]
fn a_copy_outlives_its_server() {
    let p = Place::new();
    fs::write(p.here("f"), noise(SIZE, 2)).unwrap();
    let (daemon, at, key) = serve(&p, 0, "127.0.0.1:0", &[]);
    let running = p.start(&["cp", "--json", "--block", "1K", "--window", "1", "f", &url(&at, &key, "/f")]);
    until("a part", || fs::read_dir(p.srv("")).unwrap().count() > 0);
    std::thread::sleep(Duration::from_millis(50));
    let port = daemon.port();
    daemon.kill();
    assert!(!p.srv("f").exists(), "it was too fast for this test");
    std::thread::sleep(Duration::from_millis(300));
    let (_daemon, _, same_key) = serve(&p, port, &at, &[]);
    assert_eq!(key, same_key, "the server is who it was");
    running.finish().expect(0, &[]);
    assert!(fs::read(p.srv("f")).unwrap() == noise(SIZE, 2));
}

/// Where a user exports the home directory it is in there.
#[test]
fn server_keys_are_hidden_from_clients() {
    let p = Place::new();
    let home = p.state();
    fs::create_dir_all(home.join("files")).unwrap();
    let own = home.join("own.key");
    let export = format!("home={}", home.display());
    let (daemon, ..) = serve(&p, 0, "127.0.0.1:0", &["--export", &export, "--atp-key", own.to_str().unwrap()]);
    assert!(home.join("server/handle-key").exists() && own.exists());
    assert!(p.ok(&["ls", &daemon.url("/home")]).contains("files"));
    p.run(&["ls", &daemon.url("/home/server")]).expect(1, &["permission denied"]);
    for path in ["/home/server/handle-key", "/home/own.key"] {
        p.run(&["cat", &daemon.url(path)]).expect(1, &["permission denied"]);
    }
    p.run(&["mv", &daemon.url("/home/server"), &daemon.url("/home/files/server")]).expect(1, &["permission denied"]);
}

#[test]
fn keys_made_after_the_start_are_closed_to_clients() {
    let p = Place::new();
    let home = p.state();
    let usual = home.join("remora");
    let export = format!("home={}", home.display());
    let (daemon, ..) = serve(&p, 0, "127.0.0.1:0", &["--export", &export]);
    assert_eq!(fs::metadata(&usual).unwrap().permissions().mode() & 0o777, 0o700);
    // As another command makes it; `remora keys` would use an older key of the user who runs the test.
    fs::write(usual.join("atp.key"), "secret").unwrap();
    p.run(&["cat", &daemon.url("/home/remora/atp.key")]).expect(1, &["permission denied"]);
    p.run(&["ls", &daemon.url("/home/remora")]).expect(1, &["permission denied"]);
}

#[test]
fn key_in_the_earlier_place_is_closed_to_clients() {
    let p = Place::new();
    let config = p.here("home/.config");
    fs::create_dir_all(config.join("remora")).unwrap();
    for file in ["remora/atp.key", "remora/other"] {
        fs::write(config.join(file), "text").unwrap();
    }
    let args = ["serve", "--listen", "127.0.0.1:0", "--export", "home=home", "--squash", "none", "--json"];
    let mut command = p.command(&args);
    command.env("HOME", p.here("home")).env_remove("XDG_CONFIG_HOME");
    let daemon = Daemon::start(command);
    p.run(&["cat", &daemon.url("/home/.config/remora/atp.key")]).expect(1, &["permission denied"]);
    assert_eq!(p.ok(&["cat", &daemon.url("/home/.config/remora/other")]), "text");
}

#[test]
fn wrong_keys_are_refused_with_a_hint() {
    let p = Place::new();
    let (_daemon, at, key) = serve(&p, 0, "127.0.0.1:0", &[]);
    let (_other, other_at, other_key) = serve(&p, 0, "127.0.0.1:0", &["--atp-key", "other.key", "--atp-allow", &key]);
    p.run(&["ls", &url(&at, &other_key, "/")]).expect(1, &["another key", "key= in the URL"]);
    p.run(&["ls", &url(&other_at, &other_key, "/")]).expect(1, &["does not admit", "--atp-allow"]);
    p.run(&["ls", &format!("nfs://{at}/?proto=atp")]).expect(2, &["key=KEY"]);
}
