//! Whole files, good and bad.

use remora_server::Squash;

use super::*;

fn nobody(_: &str) -> Result<Vec<std::net::IpAddr>, String> {
    Err("not known".into())
}

fn wrong_of(text: &str) -> (usize, String) {
    let wrong = parse(text, &nobody).map(|_| ()).unwrap_err();
    (wrong.line, wrong.why)
}

#[test]
fn missing_option_comes_from_export_or_default() {
    let text = r#"
[[export]]
path = "/srv/files"
names = ["/files", "/f"]
clients = [
    "192.168.1.0/24",
    { client = "10.0.0.7", read_only = false, squash = "none", acl = true },
    { client = "*", anon_uid = 7, secure = false },
]
read_only = true
squash = "all"
anon_uid = 1000
anon_gid = 100
secure = true
acl = false

[[export]]
path = "/srv/open"
"#;
    let parsed = parse(text, &nobody).unwrap_or_else(|w| panic!("{}: {}", w.line, w.why));
    let [files, open] = &parsed.entries[..] else { panic!("two exports") };
    let all = Terms { read_only: true, squash: Squash::All, anon_uid: 1000, anon_gid: 100, secure: true, acl: false };
    let rule = |clients: &str, terms| Rule { clients: clients.parse().unwrap(), terms };
    let want = [
        rule("10.0.0.7", Terms { read_only: false, squash: Squash::None, acl: true, ..all }),
        rule("192.168.1.0/24", all),
        rule("*", Terms { anon_uid: 7, secure: false, ..all }),
    ];
    assert_eq!(files.access.rules(), want);
    assert_eq!((files.line, files.path.as_str()), (2, "/srv/files"));
    assert_eq!(files.names.as_deref(), Some(&["/files".to_owned(), "/f".to_owned()][..]));
    let note = "'/srv/open' has no clients: whoever reaches the server may use it";
    assert_eq!(parsed.notes, [(17, note.to_owned())]);
    assert_eq!((open.line, &open.names, &open.access), (17, &None, &Access::everybody(Terms::default())));
}

#[test]
fn wrong_file_error_names_line_key_and_expectation() {
    let keys =
        "expected one of `path`, `names`, `clients`, `read_only`, `squash`, `anon_uid`, `anon_gid`, `secure`, `acl`";
    let table = |rest: &str| format!("# Ours.\n[[export]]\npath = \"/a\"\n{rest}\n");
    for (text, line, why) in [
        (table("colour = 1"), 4, format!("colour = 1: unknown field `colour`, {keys}")),
        (
            table("read_only = \"yes\""),
            4,
            "read_only = \"yes\": invalid type: string \"yes\", expected a boolean".into(),
        ),
        (
            table("squash = \"some\""),
            4,
            "squash = \"some\": unknown variant `some`, expected one of `root`, `all`, `none`".into(),
        ),
        (table("anon_uid = -2"), 4, "anon_uid = -2: invalid value: integer `-2`, expected u32".into()),
        (table("anon_gid = 4294967295"), 4, "anon_gid = 4294967295: no user or group has this number".into()),
        (table("clients = []"), 2, "'/a': it has no clients, so nobody could use it".into()),
        (table("names = []"), 2, "'/a': it has no names, so nobody could mount it".into()),
        (table("clients = [\"*\", \"*\"]"), 2, "'/a': '*' is among its clients twice".into()),
        (
            table("clients = [\n  \"10.0.0.0/8\",\n  \"10.0.0\",\n]"),
            6,
            "\"10.0.0\",: '10.0.0' is not a network: expected an address, or one with a prefix as in 10.0.0.0/8".into(),
        ),
        (
            table("clients = [7]"),
            4,
            "clients = [7]: invalid type: integer `7`, expected a client, as in \"10.0.0.0/8\" or \
             { client = \"10.0.0.0/8\", read_only = true }"
                .into(),
        ),
        (
            table("clients = [{ client = \"@net\" }]"),
            4,
            "clients = [{ client = \"@net\" }]: '@net': there are no netgroups here: list addresses or networks".into(),
        ),
        (
            table("clients = [{ client = \"*\", rw = true }]"),
            4,
            "clients = [{ client = \"*\", rw = true }]: unknown field `rw`, expected one of `client`, `read_only`, \
             `squash`, `anon_uid`, `anon_gid`, `secure`, `acl`"
                .into(),
        ),
        ("[[export]]\nread_only = true\n".into(), 1, "[[export]]: missing field `path`".into()),
        ("[[exports]]\npath = \"/a\"\n".into(), 1, "[[exports]]: unknown field `exports`, expected `export`".into()),
        ("/srv *(rw)\n".into(), 1, "/srv *(rw): key with no value, expected `=`".into()),
    ] {
        assert_eq!(wrong_of(&text), (line, why), "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn nothing_makes_it_panic(text in "(\\[\\[export\\]\\]\n)?.{0,60}") {
        let _ = parse(&text, &nobody);
    }
}
