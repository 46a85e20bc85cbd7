//! Tests with whole files, valid and invalid.

use remora_server::{Squash, Terms};

use super::*;

fn nobody(_: &str) -> Result<Vec<std::net::IpAddr>, String> {
    Err("not known".into())
}

const RO: Terms =
    Terms { read_only: true, squash: Squash::Root, anon_uid: 65534, anon_gid: 65534, secure: false, acl: true };
const RW: Terms = Terms { read_only: false, ..RO };

/// Path, line, clients and their terms.
type Read = (String, usize, Vec<(String, Terms)>);

fn read(text: &str) -> Vec<Read> {
    let rules = |e: &Entry| e.access.rules().iter().map(|r| (r.clients.to_string(), r.terms)).collect();
    let parsed = parse(text, &nobody).unwrap_or_else(|w| panic!("{text}: {}: {}", w.line, w.why));
    parsed.entries.iter().map(|e| (e.path.clone(), e.line, rules(e))).collect()
}

#[test]
fn exports_line_has_same_meaning_as_on_linux() {
    for (clients, want) in [
        ("*", vec![("*", RO)]),
        ("*(rw)", vec![("*", RW)]),
        ("*()", vec![("*", RO)]),
        ("10.0.0.1(rw,sync,no_subtree_check,sec=sys,hide)", vec![("10.0.0.1", RW)]),
        ("10.0.0.0/255.0.0.0(rw,no_root_squash)", vec![("10.0.0.0/8", Terms { squash: Squash::None, ..RW })]),
        ("fd00::/8(rw,ro)", vec![("fd00::/8", RO)]),
        (
            "*(ro,all_squash,anonuid=1000,anongid=100)",
            vec![("*", Terms { squash: Squash::All, anon_uid: 1000, anon_gid: 100, ..RO })],
        ),
        (
            "*(anonuid=-2,anongid=4294967294)",
            vec![("*", Terms { anon_uid: u32::MAX - 1, anon_gid: u32::MAX - 1, ..RO })],
        ),
        ("*(no_root_squash,all_squash)", vec![("*", Terms { squash: Squash::All, ..RO })]),
        ("*(no_root_squash,all_squash,no_all_squash)", vec![("*", Terms { squash: Squash::None, ..RO })]),
        ("*(secure) 10.0.0.1(secure,insecure)", vec![("10.0.0.1", RO), ("*", Terms { secure: true, ..RO })]),
        ("*(no_acl) 10.0.0.1(no_acl,acl)", vec![("10.0.0.1", RO), ("*", Terms { acl: false, ..RO })]),
        ("*(rw) 10.0.0.0/8(ro) 10.0.0.1", vec![("10.0.0.1", RO), ("10.0.0.0/8", RO), ("*", RW)]),
        (
            "10.0.0.1 -rw,all_squash 10.0.0.2 -no_all_squash 10.0.0.3(ro) 10.0.0.4",
            vec![
                ("10.0.0.1", RO),
                ("10.0.0.2", Terms { squash: Squash::All, ..RW }),
                ("10.0.0.3", RO),
                ("10.0.0.4", RW),
            ],
        ),
    ] {
        let want = want.into_iter().map(|(c, t)| (c.to_owned(), t)).collect();
        assert_eq!(read(&format!("/srv {clients}")), [("/srv".to_owned(), 1, want)], "{clients}");
    }
}

#[test]
fn lines_about_one_path_are_one_export() {
    let text = "\
# What the office may see.
\"/srv/the office\"  10.0.0.0/8(rw) \\
                   *(ro)
/srv/b *

/srv/the\\040office 10.0.0.1(rw,no_root_squash) # the backup
";
    let office =
        vec![("10.0.0.1".into(), Terms { squash: Squash::None, ..RW }), ("10.0.0.0/8".into(), RW), ("*".into(), RO)];
    assert_eq!(read(text), [("/srv/the office".into(), 2, office), ("/srv/b".into(), 4, vec![("*".into(), RO)])]);
}

#[test]
fn options_that_make_no_difference_are_noted_with_their_line() {
    let notes = parse("/a *(wdelay,rw)\n/b *(fsid=0,subtree_check)\n/c *(insecure_locks)", &nobody).unwrap().notes;
    let want = [
        (1, "'wdelay' changes nothing: flushes are shared, and none waits for another write"),
        (2, "'fsid=0' changes nothing: handles hold the export's path"),
        (2, "'subtree_check' changes nothing: no handle leaves the exported tree anyway"),
        (3, "'insecure_locks' changes nothing: there is no lock manager"),
    ];
    assert_eq!(notes, want.map(|(line, text)| (line, text.to_owned())));
}

#[test]
fn wrong_lines_are_refused_with_their_number_and_the_reason() {
    for (text, line, why) in [
        ("\nsrv *", 2, "'srv' is not a path: it must begin with '/'"),
        ("/a", 1, "'/a' has no clients: write * for everybody"),
        ("/a -rw", 1, "'/a' has no clients: write * for everybody"),
        ("/a *\n/b 10.0.0.1 (rw)", 2, "'(rw)' names no clients: no blank may stand before '(', and everybody is *"),
        ("/a *(rw, sync)", 1, "'*(rw,': expected CLIENT(OPTION,...) without blanks"),
        ("/a *(rw)x", 1, "'*(rw)x': expected CLIENT(OPTION,...) without blanks"),
        ("/a *(rw)(ro)", 1, "'*(rw)(ro)': expected CLIENT(OPTION,...) without blanks"),
        ("/a *(async)", 1, "'async' is refused: what a client was told to be on stable storage is there"),
        (
            "/a *(crossmnt)",
            1,
            "'crossmnt' is refused: of what is mounted inside, clients see the directory below: export it on a line of its own",
        ),
        (
            "/a *(sec=krb5)",
            1,
            "'sec=krb5' is refused: there is neither Kerberos nor TLS: only sec=sys and xprtsec=none",
        ),
        ("/a *(mp)", 1, "'mp' is refused: whether it is mounted is not looked at"),
        ("/a *(rx)", 1, "'rx' is no option that exports(5) knows"),
        ("/a -rx *", 1, "'rx' is no option that exports(5) knows"),
        ("/a *(sync=1)", 1, "'sync=1' is no option that exports(5) knows"),
        ("/a *(anonuid=-1)", 1, "'anonuid=-1': expected a number from 0 on"),
        ("/a *(nordirplus)", 1, "'nordirplus' is refused: READDIRPLUS is always answered"),
        ("/a *(anongid=)", 1, "'anongid=': expected a number from 0 on"),
        ("/a *(anonuid=4294967295)", 1, "'anonuid=4294967295': expected a number from 0 on"),
        ("/a @net(rw)", 1, "'@net': there are no netgroups here: list addresses or networks"),
        (
            "/a * \\\n 10.0.0.1/40(rw)",
            2,
            "'10.0.0.1/40' is not a network: expected an address, or one with a prefix as in 10.0.0.0/8",
        ),
        ("/a 10.0.0.1\n/a 10.0.0.1(rw)", 1, "'/a': '10.0.0.1' is among its clients twice"),
        ("/a \"*", 1, "a quote is not closed"),
    ] {
        let wrong = parse(text, &nobody).map(|_| ()).unwrap_err();
        assert_eq!((wrong.line, wrong.why.as_str()), (line, why), "{text}");
    }
}
