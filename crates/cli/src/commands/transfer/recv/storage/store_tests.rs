//! The store alone: names, parts in any order, and what is in the way.

use remora_atp::session::PublicKey;

use super::*;
use crate::commands::transfer::transfer_protocol::RANGES_MAX;
use crate::cp::resume::temp_name::is_part;

fn guest(n: u8) -> Holder {
    Holder { key: PublicKey::from_bytes([n; 32]), host: None }
}

/// With as many keys as there are numbers, all on one host.
fn stranger(n: u8, host: u8) -> Holder {
    Holder::stranger(PublicKey::from_bytes([n; 32]), ([10, 0, 0, host], 1).into())
}

#[derive(Debug)]
struct Peer {
    has_ended: bool,
}

impl Session for Peer {
    fn has_ended(&self) -> bool {
        self.has_ended
    }
}

fn session() -> Arc<dyn Session> {
    Arc::new(Peer { has_ended: false })
}

struct Case {
    dir: tempfile::TempDir,
    store: Store,
}

impl Case {
    fn new(overwrite: bool, size_max: u64) -> Case {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(ReceivePolicy { dir: dir.path().into(), overwrite, size_max, umask: 0o027 });
        Case { dir, store }
    }

    fn say(&mut self, from: u8, name: &str, whole: &[u8], at: Option<(u64, u64)>) -> Option<Verdict> {
        let mut said = Announcement::new(0, name.into(), whole.len() as u64, blake3::hash(whole));
        said.at = at.map(|(from, _)| from);
        let data = at.map_or(&[][..], |(from, to)| &whole[from as usize..to as usize]);
        self.take(from, &said, data)
    }

    /// What takes long is done at once.
    fn take(&mut self, from: u8, said: &Announcement, data: &[u8]) -> Option<Verdict> {
        match self.store.take(guest(from), session(), said, data) {
            Step::Answer(verdict) => verdict,
            Step::Background(work) => {
                Some(self.store.settle(&(guest(from).key, said.name.clone()), work.run(&Default::default())))
            }
            step => panic!("{step:?}"),
        }
    }

    /// Asks about a file that is not there; whether it has a place now.
    fn asks(&mut self, from: Holder, name: &str) -> bool {
        let said = Announcement::new(0, name.into(), 3, blake3::hash(b"abc"));
        match self.store.take(from, session(), &said, b"") {
            Step::Answer(Some(Verdict::Missing { .. })) => true,
            Step::Queue => false,
            step => panic!("{step:?}"),
        }
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
fn unsafe_names_are_refused() {
    let long = "x".repeat(256);
    for (name, word) in [
        ("", "directory"),
        (".", "directory"),
        ("..", "directory"),
        ("../x", "outside"),
        ("/etc/passwd", "outside"),
        ("a//b", "outside"),
        ("a/../../b", "outside"),
        ("a/./b", "outside"),
        (".ssh/config", "hidden"),
        ("a/.b.remora-part-1", "temporary"),
        (&("d/".repeat(33) + "x"), "nested directories"),
        ("a\0b", "outside"),
        (".bashrc", "hidden"),
        ("a\nb", "control"),
        ("\u{1b}[2J", "control"),
        ("a\u{202e}gpj.exe", "text direction"),
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
fn parts_in_any_order_report_missing_ranges() {
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
    refused(case.say(2, "a", b"other", Some((0, 5))), "exists");
    assert_eq!(case.names(), ["a"]);
}

#[test]
fn changed_file_starts_again_and_wrong_hash_is_refused() {
    let mut case = Case::new(false, 100);
    case.say(1, "a", b"0123456789", Some((0, 9)));
    assert_eq!(case.say(1, "a", b"9876543210", None), Some(Verdict::Missing { missing: vec![(0, 10)] }));
    let mut said = Announcement::new(0, "b".into(), 5, blake3::hash(b"hello"));
    said.at = Some(0);
    refused(case.take(1, &said, b"world"), "announced");
    refused(case.take(1, &said, b"hello!"), "beyond");
    said.at = Some(u64::MAX);
    refused(case.take(1, &said, b"x"), "beyond");
    drop(case.store);
    assert_eq!(fs::read_dir(case.dir.path()).unwrap().count(), 0, "nothing unfinished is left");
}

#[test]
fn existing_file_is_kept_without_overwrite() {
    let mut case = Case::new(false, 100);
    assert_eq!(case.whole("a", b""), Some(Verdict::Stored));
    assert_eq!(case.whole("a", b""), Some(Verdict::Stored), "sent again");
    refused(case.whole("a", b"x"), "exists");
    refused(case.whole("b", &[0; 101]), "100 B");
    // One that appears meanwhile is kept, too.
    case.say(1, "c", b"mine", Some((0, 2)));
    fs::write(case.dir.path().join("c"), "theirs").unwrap();
    refused(case.say(1, "c", b"mine", Some((2, 4))), "exists");
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
fn pieces_of_a_file_are_bounded() {
    let mut case = Case::new(false, 1 << 20);
    let whole = vec![7; 4 * RANGES_MAX];
    assert!(matches!(case.say(1, "g", &whole, None), Some(Verdict::Missing { .. })));
    let last = (0..RANGES_MAX as u64 + 1).find_map(|n| case.say(1, "g", &whole, Some((2 * n, 2 * n + 1))));
    refused(last, "pieces");
    assert_eq!(case.names(), [""; 0]);
}

#[test]
fn key_with_all_its_slots_leaves_slots_for_others() {
    let mut case = Case::new(false, 1 << 20);
    assert_eq!((0..100).filter(|n| case.asks(guest(1), &format!("f{n}"))).count(), PLACES.of_key);
    assert!(case.asks(guest(2), "a"));
    assert_eq!(case.whole("small", b"what is whole needs no place"), Some(Verdict::Stored));
    // Its own files make room for one another only when they were silent for long.
    case.store.touch(Instant::now() - SILENT);
    assert!(!case.asks(guest(1), "more"));
    case.store.touch(Instant::now() - STALE);
    assert!(case.asks(guest(1), "more"));
    assert_eq!(case.store.unfinished.len(), PLACES.of_key + 1);
}

#[test]
fn silent_file_of_the_largest_holder_is_evicted() {
    let mut case = Case::new(false, 1 << 20);
    let keys = PLACES.all / PLACES.of_key;
    for (from, n) in (0..keys as u8).flat_map(|from| (0..PLACES.of_key).map(move |n| (from, n))) {
        assert!(case.asks(guest(from), &format!("f{n}")));
    }
    let later = Instant::now() + STALE;
    case.store.touch(later);
    assert!(!case.asks(guest(99), "a"), "all are busy");
    assert_eq!(case.store.make_place(guest(99)), Err(Some(later + SILENT)));
    case.store.touch(Instant::now() - SILENT);
    for name in ["a", "b", "c"] {
        assert!(case.asks(guest(99), name));
    }
    assert_eq!(case.store.unfinished.len(), PLACES.all);
    assert_eq!(case.names().len(), PLACES.all);
}

#[test]
fn host_with_many_keys_leaves_slots_for_others() {
    let mut case = Case::new(false, 1 << 20);
    let busy = (0..100).filter(|n| case.asks(stranger(*n, 1), "f")).count();
    assert_eq!(busy, PLACES.of_host);
    assert!(case.asks(stranger(200, 2), "f"), "another host has its own");
    assert!(!case.asks(stranger(201, 1), "g"));
    case.store.touch(Instant::now() - STALE);
    assert!(case.asks(stranger(201, 1), "g"));
    // On one host the key with most gives way first.
    let mut case = Case::new(false, 1 << 20);
    for from in [1, 2] {
        (0..PLACES.of_key).for_each(|n| assert!(case.asks(stranger(from, 1), &format!("f{n}"))));
    }
    case.store.touch(Instant::now() - SILENT);
    assert!(case.asks(stranger(3, 1), "g"));
}

#[test]
fn strangers_with_all_slots_yield_to_another_host() {
    let mut case = Case::new(false, 1 << 20);
    let strangers = (1..=4u8).flat_map(|host| (0..64u8).map(move |n| stranger(64 * (host - 1) + n, host)));
    assert_eq!(strangers.filter(|from| case.asks(*from, "f")).count(), PLACES.all);
    // They are busy, and an honest sender in an outage is not.
    let honest = stranger(7, 9);
    assert!(case.asks(honest, "a"));
    let touched = case.store.unfinished.values_mut();
    touched.for_each(|u| u.touched = Instant::now() - if u.from == honest { SILENT } else { Duration::ZERO });
    let more = (0..100).filter(|n| case.asks(stranger(*n, 10), "g")).count();
    assert_eq!(more, (PLACES.all - 1) / 5, "an equal share");
    assert!(case.store.unfinished.contains_key(&(honest.key, "a".into())));
    assert_eq!(case.store.unfinished.len(), PLACES.all);
}

#[test]
fn file_of_an_ended_session_makes_room_at_once() {
    let mut case = Case::new(false, 1 << 20);
    (0..PLACES.of_key).for_each(|n| assert!(case.asks(guest(1), &format!("f{n}"))));
    assert!(!case.asks(guest(1), "more"));
    let owner = |name: &str| (guest(1).key, name.to_owned());
    let ended = Arc::new(Peer { has_ended: true });
    for name in ["f3", "f4"] {
        case.store.unfinished.get_mut(&owner(name)).unwrap().session = ended.clone();
    }
    // The next message about a file comes in another session.
    assert!(case.asks(guest(1), "f4"));
    assert!(case.asks(guest(1), "more"));
    assert!(!case.store.unfinished.contains_key(&owner("f3")));
    assert!(!case.asks(guest(1), "another"));
}

/// What others may do in a directory that they can write in.
#[test]
fn existing_file_at_the_hidden_name_is_not_used() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let mut case = Case::new(false, 100);
    case.say(1, "a", b"0123456789", None);
    let hidden = case.dir.path().join(&case.names()[0]);
    case.store.unfinished.clear();
    for how in ["file", "hard link", "link"] {
        let mut case = Case::new(false, 100);
        let planted = case.dir.path().join(hidden.file_name().unwrap());
        let other = case.dir.path().join("other");
        fs::write(&other, "other").unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o666)).unwrap();
        match how {
            "file" => drop(fs::copy(&other, &planted).unwrap()),
            "hard link" => fs::hard_link(&other, &planted).unwrap(),
            _ => symlink(&other, &planted).unwrap(),
        }
        let reader = fs::File::open(&planted).unwrap();
        assert_eq!(case.whole("a", b"0123456789"), Some(Verdict::Stored), "{how}");
        let meta = fs::metadata(case.dir.path().join("a")).unwrap();
        assert_eq!((meta.mode() & 0o777, meta.nlink()), (0o600, 1), "{how}");
        assert_ne!(meta.ino(), reader.metadata().unwrap().ino(), "{how}");
        assert_eq!((fs::read(&other).unwrap(), case.names().len()), (b"other".to_vec(), 2), "{how}");
    }
}

#[test]
fn existing_large_file_is_hashed_once_in_background() {
    let whole = vec![7; AT_ONCE_MAX as usize + 1];
    for (bytes, overwrite, want) in
        [(7, false, Some("stored")), (8, false, None), (7, true, Some("stored")), (8, true, Some("missing"))]
    {
        let mut case = Case::new(overwrite, 1 << 30);
        let path = case.dir.path().join("a");
        fs::write(&path, vec![bytes; whole.len()]).unwrap();
        let said = Announcement::new(0, "a".into(), whole.len() as u64, blake3::hash(&whole));
        let Step::Background(work) = case.store.take(guest(1), session(), &said, b"") else { panic!() };
        // Meanwhile others go on.
        assert!(matches!(case.store.take(guest(1), session(), &said, b""), Step::Wait));
        assert_eq!(case.whole("b", b"x"), Some(Verdict::Stored));
        let verdict = case.store.settle(&(guest(1).key, "a".into()), work.run(&Default::default()));
        match want {
            Some("stored") => assert_eq!(verdict, Verdict::Stored),
            Some(_) => assert_eq!(verdict, Verdict::Missing { missing: vec![(0, said.size)] }),
            None => refused(Some(verdict), "exists"),
        }
        // What is known is not hashed again.
        let mut case = Case::new(false, 1 << 30);
        let path = case.dir.path().join("a");
        fs::write(&path, &whole).unwrap();
        let later = SystemTime::now() + Duration::from_secs(60);
        case.store.known.note(Stamp::of(&fs::metadata(&path).unwrap()), said.hash, later);
        assert!(matches!(case.store.take(guest(1), session(), &said, b""), Step::Answer(Some(Verdict::Stored))));
        // A sender that asks nothing gets the verdict after its last part.
        fs::write(&path, vec![bytes; whole.len()]).unwrap();
        let verdict = case.whole("a", &whole);
        if bytes == 7 {
            assert_eq!(verdict, Some(Verdict::Stored))
        } else {
            refused(verdict, "exists")
        }
        assert_eq!(case.names(), ["a"]);
    }
}

/// Two senders with one key send it at the same time.
#[test]
fn late_part_of_a_renamed_file_gets_stored() {
    let whole = vec![7; AT_ONCE_MAX as usize + 1];
    let size = whole.len() as u64;
    let missing = |ranges: &[(u64, u64)]| Some(Verdict::Missing { missing: ranges.to_vec() });
    let mut case = Case::new(false, 1 << 30);
    assert_eq!(case.say(1, "a", &whole, None), missing(&[(0, size)]));
    assert_eq!(case.say(1, "a", &whole, Some((0, 9))), None);
    assert_eq!(case.say(1, "a", &whole, Some((9, size))), Some(Verdict::Stored));
    assert_eq!(case.say(1, "a", &whole, Some((0, 9))), Some(Verdict::Stored));
    assert_eq!(case.say(1, "a", &whole, None), Some(Verdict::Stored));
    assert_eq!(case.names(), ["a"]);
    // It is another one by now: of this one nothing is there.
    let other = case.dir.path().join("a");
    fs::write(&other, vec![8; whole.len()]).unwrap();
    fs::File::open(other).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    case.store.rules.overwrite = true;
    assert_eq!(case.say(1, "a", &whole, Some((0, 9))), missing(&[(9, size)]));
    assert_eq!(case.say(1, "a", &whole, None), missing(&[(9, size)]));
}

#[test]
fn background_jobs_are_bounded() {
    let mut case = Case::new(false, 1 << 30);
    let said = |name: String| Announcement::new(0, name, AT_ONCE_MAX + 1, blake3::hash(b""));
    for n in 0..=ASIDE.of_key {
        let name = format!("f{n}");
        fs::File::create(case.dir.path().join(&name)).unwrap().set_len(AT_ONCE_MAX + 1).unwrap();
        let step = case.store.take(guest(1), session(), &said(name), b"");
        assert_eq!(matches!(step, Step::Background(_)), n < ASIDE.of_key, "{n}");
    }
    assert!(
        matches!(case.store.take(guest(2), session(), &said("f0".into()), b""), Step::Background(_)),
        "another's turn comes"
    );
}

#[test]
fn replaceable_file_needs_a_slot_while_hashed() {
    let mut case = Case::new(true, 1 << 30);
    (1..PLACES.of_key).for_each(|n| assert!(case.asks(guest(1), &format!("f{n}"))));
    let said = |name: &str| Announcement::new(0, name.into(), AT_ONCE_MAX + 1, blake3::hash(b""));
    for name in ["a", "b"] {
        fs::File::create(case.dir.path().join(name)).unwrap().set_len(AT_ONCE_MAX + 1).unwrap();
    }
    let Step::Background(work) = case.store.take(guest(1), session(), &said("a"), b"") else { panic!() };
    assert!(matches!(case.store.take(guest(1), session(), &said("b"), b""), Step::Queue));
    assert!(!case.asks(guest(1), "more"), "the last place is held");
    let verdict = case.store.settle(&(guest(1).key, "a".into()), work.run(&Default::default()));
    assert!(matches!(verdict, Verdict::Missing { .. }));
    assert_eq!(case.store.unfinished.len(), PLACES.of_key);
    assert!(matches!(case.store.take(guest(1), session(), &said("b"), b""), Step::Queue));
}

/// As another receiver in the same directory may leave it.
#[test]
fn replaced_temp_file_is_neither_renamed_nor_removed() {
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
        drop(std::mem::replace(
            &mut case.store,
            Store::new(ReceivePolicy { dir: "/".into(), overwrite: false, size_max: 0, umask: 0 }),
        ));
        let mut names = case.names();
        names.sort();
        assert!(names.len() == 2 && hidden.exists() && names.contains(&"finished".to_owned()), "{names:?}");
    }
}

/// A second name of the same inode stands for a file system that takes both names for one.
#[test]
fn folded_name_of_a_received_file_is_refused() {
    for (overwrite, bytes) in [(false, &b"first"[..]), (true, b"first"), (true, b"other")] {
        let mut case = Case::new(overwrite, 100);
        assert_eq!(case.whole("README", b"first"), Some(Verdict::Stored));
        let [first, second] = ["README", "readme"].map(|name| case.dir.path().join(name));
        fs::hard_link(&first, &second).unwrap();
        // A link more is a change, which a file system that folds names does not make.
        case.store.given = Default::default();
        let meta = fs::metadata(&first).unwrap();
        case.store.given.give(&first, "README", &meta, || Ok(())).unwrap();
        refused(case.whole("readme", bytes), "'README'");
        assert_eq!(fs::read(&second).unwrap(), b"first");
        assert_eq!(case.whole("README", b"first"), Some(Verdict::Stored), "the same name again");
    }
}

#[test]
fn folded_name_of_a_file_on_its_way_is_refused() {
    let mut case = Case::new(true, 100);
    assert!(matches!(case.say(1, "README", b"first", None), Some(Verdict::Missing { .. })));
    let hidden = case.dir.path().join(&case.names()[0]);
    let folded = hidden.to_str().unwrap().replace("README", "readme");
    fs::hard_link(&hidden, folded).unwrap();
    refused(case.whole("readme", b"other"), "'README'");
}
