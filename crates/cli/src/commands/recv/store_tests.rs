//! The store alone: names, parts in any order, and what is in the way.

use super::*;
use crate::cp::names::is_part;

fn key(n: u8) -> PublicKey {
    PublicKey::from_bytes([n; 32])
}

struct Case {
    dir: tempfile::TempDir,
    store: Store,
}

impl Case {
    fn new(overwrite: bool, size_max: u64) -> Case {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(Rules { dir: dir.path().into(), overwrite, size_max });
        Case { dir, store }
    }

    fn say(&mut self, from: u8, name: &str, whole: &[u8], at: Option<(u64, u64)>) -> Option<Verdict> {
        let mut said = Announcement::new(0, name.into(), whole.len() as u64, blake3::hash(whole));
        said.at = at.map(|(from, _)| from);
        let data = at.map_or(&[][..], |(from, to)| &whole[from as usize..to as usize]);
        self.store.take(key(from), &said, data)
    }

    fn whole(&mut self, name: &str, bytes: &[u8]) -> Option<Verdict> {
        self.say(1, name, bytes, Some((0, bytes.len() as u64)))
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }
}

#[track_caller]
fn refused(verdict: Option<Verdict>, word: &str) {
    let Some(Verdict::Refused { why }) = verdict else { panic!("{verdict:?}") };
    assert!(why.contains(word), "{why}");
}

#[test]
fn only_plain_names_are_taken() {
    let long = "x".repeat(256);
    for (name, word) in [
        ("", "directory"),
        (".", "directory"),
        ("..", "directory"),
        ("../x", "elsewhere"),
        ("/etc/passwd", "elsewhere"),
        ("a/b", "elsewhere"),
        ("a\0b", "elsewhere"),
        (".bashrc", "hidden"),
        ("a\nb", "control"),
        ("\u{1b}[2J", "control"),
        ("a\u{202e}gpj.exe", "rearrange"),
        (&long, "long"),
    ] {
        let mut case = Case::new(true, 100);
        refused(case.whole(name, b"x"), word);
        refused(case.say(1, name, b"x", None), word);
        assert_eq!(case.names(), [""; 0], "{name:?}");
    }
    let mut case = Case::new(false, 100);
    for name in ["a b", "é", "...x".trim_start_matches('.'), "می\u{200c}خواهم", &long[1..]] {
        assert_eq!(case.whole(name, b"x"), Some(Verdict::Stored), "{name}");
    }
}

#[test]
fn parts_come_in_any_order_and_what_is_missing_is_told() {
    let mut case = Case::new(false, 100);
    assert_eq!(case.say(1, "a", b"0123456789", None), Some(Verdict::Missing { missing: vec![(0, 10)] }));
    assert_eq!(case.say(1, "a", b"0123456789", Some((6, 10))), None);
    assert_eq!(case.say(1, "a", b"0123456789", Some((0, 3))), None);
    assert_eq!(case.say(1, "a", b"0123456789", None), Some(Verdict::Missing { missing: vec![(3, 6)] }));
    assert!(case.names().iter().all(|n| is_part(n.as_bytes())));
    // Somebody else's file of the same name is another one.
    assert_eq!(case.say(2, "a", b"0123456789", None), Some(Verdict::Missing { missing: vec![(0, 10)] }));
    assert_eq!(case.say(1, "a", b"0123456789", Some((2, 7))), Some(Verdict::Stored));
    assert_eq!(fs::read(case.dir.path().join("a")).unwrap(), b"0123456789");
    refused(case.say(2, "a", b"other", Some((0, 5))), "is there");
    assert_eq!(case.names(), ["a"]);
}

#[test]
fn a_file_that_changed_begins_afresh_and_a_wrong_one_is_refused() {
    let mut case = Case::new(false, 100);
    case.say(1, "a", b"0123456789", Some((0, 9)));
    assert_eq!(case.say(1, "a", b"9876543210", None), Some(Verdict::Missing { missing: vec![(0, 10)] }));
    let mut said = Announcement::new(0, "b".into(), 5, blake3::hash(b"hello"));
    said.at = Some(0);
    refused(case.store.take(key(1), &said, b"world"), "announced");
    refused(case.store.take(key(1), &said, b"hello!"), "beyond");
    said.at = Some(u64::MAX);
    refused(case.store.take(key(1), &said, b"x"), "beyond");
    drop(case.store);
    assert_eq!(fs::read_dir(case.dir.path()).unwrap().count(), 0, "nothing unfinished is left");
}

#[test]
fn what_is_there_is_kept_unless_it_may_be_replaced() {
    let mut case = Case::new(false, 100);
    assert_eq!(case.whole("a", b""), Some(Verdict::Stored));
    assert_eq!(case.whole("a", b""), Some(Verdict::Stored), "sent again");
    refused(case.whole("a", b"x"), "is there");
    refused(case.whole("b", &[0; 101]), "100 B");
    // One that appears meanwhile is kept, too.
    case.say(1, "c", b"mine", Some((0, 2)));
    fs::write(case.dir.path().join("c"), "theirs").unwrap();
    refused(case.say(1, "c", b"mine", Some((2, 4))), "is there");
    assert_eq!(fs::read(case.dir.path().join("c")).unwrap(), b"theirs");
    case.store.rules.overwrite = true;
    assert_eq!(case.whole("c", b"mine"), Some(Verdict::Stored));
    fs::create_dir(case.dir.path().join("d")).unwrap();
    refused(case.whole("d", b"x"), "directory");
    // A link in the place of a hidden file is not followed.
    let hidden = case.names();
    assert!(hidden.iter().all(|n| !is_part(n.as_bytes())), "{hidden:?}");
}

#[test]
fn unfinished_files_and_their_pieces_are_bounded() {
    let mut case = Case::new(false, 1 << 20);
    for n in 0..UNFINISHED_MAX {
        assert!(matches!(case.say(1, &format!("f{n}"), b"abc", None), Some(Verdict::Missing { .. })));
    }
    refused(case.say(1, "more", b"abc", None), "too many files");
    let whole = vec![7; 4 * RANGES_MAX];
    case.store.unfinished.clear();
    let last = (0..RANGES_MAX as u64 + 1).find_map(|n| case.say(1, "g", &whole, Some((2 * n, 2 * n + 1))));
    refused(last, "pieces");
    assert_eq!(case.names(), [""; 0]);
}

/// As another receiver in the same directory may leave it.
#[test]
fn what_has_the_hidden_name_by_now_is_neither_given_a_name_nor_removed() {
    for finishes in [true, false] {
        let mut case = Case::new(false, 100);
        case.say(1, "a", b"0123456789", Some((0, 5)));
        let [hidden] = &case.names()[..] else { panic!("{:?}", case.names()) };
        let hidden = case.dir.path().join(hidden);
        fs::rename(&hidden, case.dir.path().join("finished")).unwrap();
        fs::write(&hidden, b"0123456789").unwrap();
        if finishes {
            refused(case.say(1, "a", b"0123456789", Some((5, 10))), "replaced");
        }
        drop(std::mem::replace(&mut case.store, Store::new(Rules { dir: "/".into(), overwrite: false, size_max: 0 })));
        let mut names = case.names();
        names.sort();
        assert!(names.len() == 2 && hidden.exists() && names.contains(&"finished".to_owned()), "{names:?}");
    }
}
