//! As whom requests are executed: by users, groups, squashing and ports. Takes root.

use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::{Command, Stdio};

use remora_wire::mount::MountError;
use remora_wire::nfs3::{self, Call, Fh, SetAttr, SpecData, Status};
use skip::skipped;

use crate::common::{Place, Running, is_root};
use crate::raw::{Client, at, create, read, set, write};
use crate::{Daemon, Exports};

const OWNER: u32 = 3001;
const MEMBER: u32 = 3002;
const OTHER: u32 = 3003;
const GROUP: u32 = 4001;

/// One directory under three addresses: root squashed for .1, nobody for .2, everybody for .3.
fn served(name: &str) -> Option<(Exports, Daemon)> {
    if !is_root() {
        skipped(name, "needs root");
        return None;
    }
    let e = Exports::new(&["a"]);
    e.write(&[("a", "127.0.0.1(rw) 127.0.0.2(rw,no_root_squash) 127.0.0.3(rw,all_squash,anonuid=3003,anongid=4003)")]);
    // Callers must be able to come by; the path above is root's business alone.
    owned(&e, "", 0, 0, 0o777);
    let server = e.serve();
    Some((e, server))
}

/// Gives a file in the export, made if it is not there, these owners and this mode.
fn owned(e: &Exports, name: &str, uid: u32, gid: u32, mode: u32) {
    let path = e.place.srv("a").join(name);
    if !path.exists() {
        fs::write(&path, "old").unwrap();
    }
    chown(&path, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
}

fn mode_of(e: &Exports, name: &str) -> u32 {
    fs::metadata(e.place.srv("a").join(name)).unwrap().mode() & 0o7777
}

fn owners_of(e: &Exports, name: &str) -> (u32, u32) {
    let found = fs::metadata(e.place.srv("a").join(name)).unwrap();
    (found.uid(), found.gid())
}

fn mounted(server: &Daemon, e: &Exports, addr: &str) -> (Client, Fh) {
    let mut client = Client::at(server, addr);
    let root = client.mount(&e.path("a")).unwrap();
    (client, root)
}

#[test]
fn request_runs_with_the_rights_of_its_caller() {
    let Some((e, server)) = served("request_runs_with_the_rights_of_its_caller") else { return };
    owned(&e, "f", OWNER, GROUP, 0o640);
    owned(&e, "zero", OWNER, 0, 0o640);
    let (mut c, root) = mounted(&server, &e, "127.0.0.1");
    let [f, zero] = ["f", "zero"].map(|name| c.lookup(&root, name));
    let denied = Some(Status::Access);
    // Twice, so that no thread keeps the rights of the caller before.
    for _ in 0..2 {
        for (who, uid, gid, gids, reads, writes) in [
            ("the owner", OWNER, 1, &[][..], None, None),
            ("by its group", MEMBER, GROUP, &[], None, denied),
            ("by a further group", MEMBER, 1, &[5, GROUP], None, denied),
            ("others", OTHER, 1, &[5], denied, denied),
            ("root, squashed", 0, 0, &[GROUP], denied, denied),
        ] {
            c.act_as(uid, gid, gids);
            assert_eq!((c.fails(&read(&f)), c.fails(&write(&f))), (reads, writes), "{who}");
        }
    }
    c.act_as(OTHER, 1, &[0]);
    assert_eq!(c.fails(&read(&zero)), denied, "group 0 is squashed like root");
    let (mut trusted, _) = mounted(&server, &e, "127.0.0.2");
    trusted.act_as(OTHER, 1, &[0]);
    assert_eq!(trusted.fails(&read(&zero)), None, "group 0 where nobody is squashed");
    trusted.act_as(0, 0, &[]);
    assert_eq!((trusted.fails(&read(&f)), trusted.fails(&write(&f))), (None, None), "root itself");
}

#[test]
fn new_files_belong_to_the_export_s_user() {
    let Some((e, server)) = served("new_files_belong_to_the_export_s_user") else { return };
    for (addr, uid, want) in [
        ("127.0.0.1", OWNER, (OWNER, GROUP)),
        ("127.0.0.1", 0, (65534, 65534)),
        ("127.0.0.2", 0, (0, GROUP)),
        ("127.0.0.3", OWNER, (3003, 4003)),
        ("127.0.0.3", 0, (3003, 4003)),
    ] {
        let (mut c, root) = mounted(&server, &e, addr);
        c.act_as(uid, GROUP, &[]);
        let name = format!("{addr} {uid}");
        assert_eq!(c.fails(&create(&root, &name)), None, "{name}");
        assert_eq!(owners_of(&e, &name), want, "{name}");
    }
}

#[test]
fn chown_and_mknod_need_root() {
    let Some((e, server)) = served("chown_and_mknod_need_root") else { return };
    owned(&e, "f", OWNER, GROUP, 0o644);
    let (mut c, root) = mounted(&server, &e, "127.0.0.1");
    let f = c.lookup(&root, "f");
    let to_user = |uid| set(&f, SetAttr { uid: Some(uid), ..SetAttr::NONE });
    let to_group = |gid| set(&f, SetAttr { gid: Some(gid), ..SetAttr::NONE });
    let mode = set(&f, SetAttr { mode: Some(0o600), ..SetAttr::NONE });
    let spec = SpecData { major: 1, minor: 3 };
    let device = |name: &str| {
        let what = nfs3::NodeKind::Char(SetAttr::NONE, spec);
        Call::MkNod(nfs3::MkNodArgs { at: at(&root, name), what })
    };
    let refused = Some(Status::Perm);
    c.act_as(OWNER, 1, &[GROUP, 4002]);
    assert_eq!((c.fails(&to_user(MEMBER)), c.fails(&to_group(4003))), (refused, refused));
    assert_eq!((c.fails(&to_group(4002)), owners_of(&e, "f")), (None, (OWNER, 4002)), "to a group of one's own");
    assert_eq!(c.fails(&device("null")), refused);
    c.act_as(OTHER, 4002, &[]);
    assert_eq!((c.fails(&mode), c.fails(&to_user(OTHER))), (refused, refused));
    c.act_as(0, 0, &[]);
    assert_eq!((c.fails(&mode), c.fails(&to_user(0))), (refused, refused), "squashed");
    let (mut trusted, _) = mounted(&server, &e, "127.0.0.2");
    assert_eq!((trusted.fails(&to_user(MEMBER)), owners_of(&e, "f")), (None, (MEMBER, 4002)));
    assert_eq!(trusted.fails(&device("null")), None);
}

#[test]
fn set_id_bits_do_not_survive_strangers_or_new_owners() {
    let Some((e, server)) = served("set_id_bits_do_not_survive_strangers_or_new_owners") else { return };
    let (mut c, root) = mounted(&server, &e, "127.0.0.1");
    let (mut trusted, _) = mounted(&server, &e, "127.0.0.2");
    owned(&e, "written", OWNER, GROUP, 0o6777);
    let f = c.lookup(&root, "written");
    c.act_as(OTHER, 1, &[]);
    assert_eq!((c.fails(&write(&f)), mode_of(&e, "written")), (None, 0o777));
    owned(&e, "cut", OWNER, GROUP, 0o6777);
    let f = c.lookup(&root, "cut");
    let cut = set(&f, SetAttr { size: Some(1), ..SetAttr::NONE });
    assert_eq!((c.fails(&cut), mode_of(&e, "cut")), (None, 0o777));
    owned(&e, "given", OWNER, GROUP, 0o6755);
    let f = trusted.lookup(&root, "given");
    let give = set(&f, SetAttr { uid: Some(MEMBER), ..SetAttr::NONE });
    assert_eq!((trusted.fails(&give), mode_of(&e, "given")), (None, 0o755));
    owned(&e, "joined", OWNER, GROUP, 0o644);
    let f = c.lookup(&root, "joined");
    c.act_as(OWNER, 1, &[]);
    let join = set(&f, SetAttr { mode: Some(0o2755), ..SetAttr::NONE });
    assert_eq!((c.fails(&join), mode_of(&e, "joined")), (None, 0o755), "not of a group one is not in");
}

#[test]
fn secure_export_requires_low_ports() {
    if !is_root() {
        return skipped("secure_export_requires_low_ports", "needs root");
    }
    let e = Exports::new(&["a"]);
    e.write(&[("a", "127.0.0.0/8(rw,secure,no_root_squash)")]);
    let server = e.serve();
    let free = (600..1024).rev().find(|port| UdpSocket::bind(("127.0.0.1", *port)).is_ok()).expect("a free port");
    let mut privileged = Client::at(&server, &format!("127.0.0.1:{free}"));
    let root = privileged.mount(&e.path("a")).unwrap();
    assert_eq!(privileged.fails(&create(&root, "f")), None);
    let mut plain = Client::at(&server, "127.0.0.1");
    assert_eq!(plain.mount(&e.path("a")), Err(MountError::Access));
    assert_eq!(plain.fails(&Call::GetAttr(root)), Some(Status::Access));
    // Remora's own client asks from such a port where it may, and from any other where it may not.
    let url = server.url(&e.path("a"));
    assert_eq!(e.place.ok(&["ls", &url]), "f\n");
    if fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap().trim() == "1024" {
        Running::start(without("net_bind_service", &e.place.command(&["ls", &url])))
            .finish()
            .expect(1, &["permission denied"]);
    }
}

fn without(capability: &str, command: &Command) -> Command {
    let mut without = Command::new("setpriv");
    without.arg(format!("--bounding-set=-{capability}")).arg(format!("--inh-caps=-{capability}"));
    without.arg(command.get_program()).args(command.get_args());
    without.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    without
}

#[test]
fn root_without_setuid_right_is_reported() {
    if !is_root() {
        return skipped("root_without_setuid_right_is_reported", "needs root");
    }
    let place = Place::new();
    let (srv, listen) = (place.srv(""), ["--listen", "127.0.0.1:0"]);
    for capability in ["setgid", "setuid"] {
        for (more, code) in [(&["--check"][..], 2), (&listen, 1)] {
            let serve = place.server_command(&[&["serve", srv.to_str().unwrap()], more].concat());
            Running::start(without(capability, &serve)).finish().expect(code, &["cannot take on callers' credentials"]);
        }
    }
}

/// `command` where the files of /etc have other contents.
fn with_etc(e: &Exports, files: &[(&str, String)], command: &Command) -> Command {
    let mut script = String::new();
    for (name, text) in files {
        let file = e.place.here(name);
        fs::write(&file, text).unwrap();
        script += &format!("mount --bind '{}' /etc/{name}\n", file.display());
    }
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--", "sh", "-ec", &format!("{script}exec \"$0\" \"$@\"")]);
    inside.arg(command.get_program()).args(command.get_args());
    inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    inside.current_dir(command.get_current_dir().unwrap());
    inside.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    inside
}

#[test]
fn looked_up_groups_replace_those_of_the_call() {
    if !is_root() {
        return skipped("looked_up_groups_replace_those_of_the_call", "needs root");
    }
    let e = Exports::new(&["a"]);
    e.write(&[("a", "127.0.0.1(rw)")]);
    owned(&e, "", 0, 0, 0o777);
    let groups = 5001..=5040;
    owned(&e, "last", 0, *groups.end(), 0o640);
    owned(&e, "foreign", 0, GROUP, 0o640);
    let list: String = groups.map(|gid| format!("g{gid}:x:{gid}:member\n")).collect();
    let etc = [
        ("passwd", format!("root:x:0:0::/root:/bin/sh\nmember:x:{MEMBER}:{MEMBER}::/:/bin/sh\n")),
        ("group", format!("root:x:0:\nmember:x:{MEMBER}:\n{list}")),
        ("nsswitch.conf", "passwd: files\ngroup: files\n".to_owned()),
    ];
    let mut command = e.server();
    command.arg("--manage-gids");
    let server = Daemon::start(with_etc(&e, &etc, &command));
    let (mut c, root) = mounted(&server, &e, "127.0.0.1");
    let [last, foreign] = ["last", "foreign"].map(|name| c.lookup(&root, name));
    for (who, uid, gids, fails) in [
        ("the 40th group of the server's list", MEMBER, &[][..], [None, Some(Status::Access)]),
        ("a group that only the call names", MEMBER, &[GROUP], [None, Some(Status::Access)]),
        ("a user whom the server does not know", OTHER, &[GROUP], [Some(Status::Access), None]),
    ] {
        c.act_as(uid, 1, gids);
        assert_eq!([c.fails(&read(&last)), c.fails(&read(&foreign))], fails, "{who}");
    }
}
