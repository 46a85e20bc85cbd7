//! The configuration file: aliases of hosts, names of keys, flags of commands.

use std::fs;

use crate::common::Place;

fn write(p: &Place, text: &str) {
    let dir = p.config().join("remora");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("config.toml"), text).unwrap();
}

#[test]
fn alias_stands_for_a_server_in_commands_on_files() {
    let p = Place::new();
    fs::create_dir_all(p.srv("sub/my dir")).unwrap();
    fs::write(p.srv("sub/100%"), "x").unwrap();
    let s = p.serve(&[]);
    write(
        &p,
        &format!("[hosts.nas]\naddress = \"{}\"\nexport = \"/sub\"\ntransport = \"tcp\"\n[ls]\njson = true\n", s.addr),
    );
    for (args, printed) in [
        (&["ls", "nas:"][..], "\"name\":\"100%\""),
        (&["ls", "nas:/"], "\"name\":\"sub\""),
        (&["cat", "nas:100%"], "x"),
        (&["stat", "--json", "nas:my dir/"], "\"directory\""),
        (&["exports", "nas"], "/"),
        (&["exports", "nas:"], "/"),
    ] {
        assert!(p.ok(args).contains(printed), "{args:?}");
    }
    p.ok(&["cp", "-q", "nas:100%", "copy"]);
    p.ok(&["cp", "-q", "copy", "nas:my dir/"]);
    assert_eq!(fs::read_to_string(p.srv("sub/my dir/copy")).unwrap(), "x");
    // As before where no alias has that name.
    p.run(&["ls", "other:/x"]).expect(2, &["perhaps nfs://other/x is meant"]);
    fs::write(p.here("nas:local"), "y").unwrap();
    p.ok(&["cp", "-q", "./nas:local", "nas:local"]);
    assert_eq!(fs::read_to_string(p.srv("sub/local")).unwrap(), "y");
}

#[test]
fn mistake_in_a_file_is_told_with_its_line() {
    let p = Place::new();
    write(&p, "[ls]\nblok = \"32K\"\n[cp]\nverify = \"yes\"\n");
    p.run(&["ls", "nfs://127.0.0.1:1/"]).expect(2, &["config.toml:2: there is no flag of ls 'blok'", "mean 'block'?"]);
    p.run(&["config", "check"]).expect(2, &["config.toml:2:", "config.toml:4: verify: expected true or false"]);
    fs::write(p.here("good.toml"), "[ls]\nblock = \"32K\"\n").unwrap();
    assert!(p.ok(&["config", "check", "good.toml"]).contains("good.toml: nothing is wrong"));
    p.run(&["config", "check", "none.toml"]).expect(1, &["none.toml"]);
    p.run(&["--config", "none.toml", "ls", "nfs://127.0.0.1:1/"]).expect(1, &["none.toml"]);
    p.run(&["--config", "good.toml", "ls"]).expect(2, &["URL", "note: the configuration adds --block=32K"]);
    fs::write(p.here("serve.toml"), "[serve]\nread-only = true\n").unwrap();
    fs::write(p.here("exports"), "/nowhere").unwrap();
    p.run(&["--config", "serve.toml", "serve", "--check", "--exports", "exports"])
        .expect(2, &["note: --read-only of the configuration does not count"]);
    fs::remove_dir_all(p.config()).unwrap();
    assert!(p.ok(&["config", "check"]).contains("config.toml"));
}

#[test]
fn named_key_is_accepted_where_a_key_is() {
    let p = Place::new();
    let sender = p.ok(&["keys"]);
    write(
        &p,
        &format!(
            "[keys]\nme = \"{}\"\n[recv]\nlisten = \"127.0.0.1:0\"\nfrom = [\"me\"]\njson = true\n",
            sender.trim()
        ),
    );
    let receiver = crate::common::Daemon::start(p.command(&["recv", "in"]));
    let key = receiver.ready["key"].as_str().unwrap();
    fs::write(p.here("note"), "n").unwrap();
    let file = fs::read_to_string(p.config().join("remora/config.toml")).unwrap();
    write(&p, &format!("{file}[send]\nquiet = true\n").replace("[keys]", &format!("[keys]\nthem = \"{key}\"")));
    p.ok(&["send", "note", &receiver.addr.to_string(), "--key", "them"]);
    assert_eq!(fs::read_to_string(p.here("in/note")).unwrap(), "n");
    p.run(&["send", "note", "127.0.0.1:1", "--key", "nobody"]).expect(2, &["nor a name in [keys]"]);
}

#[test]
fn file_that_others_may_change_stops_commands() {
    use std::os::unix::fs::PermissionsExt;
    let p = Place::new();
    write(&p, "[ls]\njson = true\n");
    let path = p.config().join("remora/config.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    p.run(&["ls", "nfs://127.0.0.1:1/"]).expect(1, &["other users may change it", "hint: chmod go-w"]);
}
