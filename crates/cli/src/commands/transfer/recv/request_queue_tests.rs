//! Who waits for what, without a network.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use remora_atp::session::PublicKey;

use super::*;
use crate::commands::transfer::recv::storage::store::{AT_ONCE_MAX, PLACES};

const SIZE: usize = AT_ONCE_MAX as usize + 1;

/// A session for each message, by number.
#[derive(Clone, Debug)]
struct To {
    number: u32,
    ended: Arc<AtomicBool>,
}

impl Session for To {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

struct Case {
    dir: tempfile::TempDir,
    desk: RequestQueue<To>,
    ended: Arc<AtomicBool>,
    asked: u32,
}

impl Case {
    fn new(overwrite: bool) -> Case {
        let dir = tempfile::tempdir().unwrap();
        let desk = RequestQueue::new(ReceivePolicy { dir: dir.path().into(), overwrite, size_max: u64::MAX, umask: 0 });
        Case { dir, desk, ended: Arc::default(), asked: 0 }
    }

    /// Sends some of `whole`, or asks.
    fn say(&mut self, from: u8, name: &str, whole: &[u8], at: Option<usize>) -> Option<Reply<To>> {
        self.asked += 1;
        let mut said = Announcement::new(0, name.into(), whole.len() as u64, blake3::hash(whole));
        said.at = at.map(|at| at as u64);
        let data = at.map_or(Bytes::new(), |at| Bytes::copy_from_slice(&whole[at..]));
        let from = Holder { key: PublicKey::from_bytes([from; 32]), host: None };
        let to = To { number: self.asked, ended: self.ended.clone() };
        self.desk.take(Message { to, from, said, data }).into_iter().next()
    }

    async fn settled(&mut self) -> Vec<(u32, Verdict)> {
        let done = self.desk.next().await;
        self.desk.settle(done).into_iter().map(|told| (told.to.number, told.verdict)).collect()
    }
}

#[tokio::test]
async fn all_askers_are_answered_after_hashing() {
    let mut case = Case::new(true);
    let (old, new) = (vec![1; SIZE], vec![2; SIZE]);
    fs::write(case.dir.path().join("a"), &old).unwrap();
    assert!(case.say(1, "a", &old, None).is_none());
    assert!(case.say(1, "a", &old, None).is_none());
    // Not the same file, and small: it comes when its turn does.
    assert!(case.say(1, "a", b"small", Some(0)).is_none());
    // Others are answered meanwhile.
    assert_eq!(case.say(1, "b", b"x", Some(0)).unwrap().verdict, Verdict::Stored);
    assert_eq!(case.say(2, "b", b"x", Some(0)).unwrap().verdict, Verdict::Stored);
    // What is too large to be kept until then is refused.
    let Some(Reply { to: To { number: 6, .. }, verdict: Verdict::Refused { why }, .. }) =
        case.say(1, "a", &new, Some(0))
    else {
        panic!()
    };
    assert!(why.contains("try again later"), "{why}");
    assert_eq!(case.settled().await, [1, 2, 3].map(|to| (to, Verdict::Stored)));
    assert_eq!(fs::read(case.dir.path().join("a")).unwrap(), b"small");
}

#[tokio::test]
async fn complete_file_is_renamed_on_another_thread() {
    let mut case = Case::new(false);
    let [a, b] = [1, 2].map(|n| vec![n; SIZE]);
    // One of a sender's at a time, in turn; all of what is there is not needed again.
    for whole in [(1, "a", &a), (1, "b", &b), (2, "c", &b)] {
        let (from, name, bytes) = whole;
        assert!(case.say(from, name, bytes, Some(0)).is_none());
        assert!(case.say(from, name, bytes, Some(0)).is_none());
    }
    assert_eq!(case.desk.works.running(), 2);
    let mut told = Vec::new();
    for _ in 0..3 {
        told.extend(case.settled().await);
    }
    told.sort_by_key(|(to, _)| *to);
    assert_eq!(told, [1, 2, 3, 4, 5, 6].map(|to| (to, Verdict::Stored)));
    assert_eq!(fs::read(case.dir.path().join("b")).unwrap(), b);
}

#[tokio::test]
async fn waiting_questions_are_bounded() {
    let mut case = Case::new(false);
    fs::write(case.dir.path().join("a"), vec![1; SIZE]).unwrap();
    for n in 0..=WAITING.of_key {
        assert_eq!(case.say(1, "a", &[1; SIZE], None).is_some(), n == WAITING.of_key, "{n}");
    }
    assert_eq!(case.settled().await.len(), WAITING.of_key);
}

/// Whether it was still being hashed, was about to be renamed, or waited for its turn.
#[tokio::test]
async fn nothing_unfinished_is_left_when_work_is_cut_short() {
    let mut case = Case::new(false);
    for n in 0..3 {
        assert!(case.say(1, &format!("f{n}"), &vec![n; SIZE], Some(0)).is_none());
    }
    drop(case.desk);
    let left = fs::read_dir(case.dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.starts_with('.')).collect::<Vec<_>>(), [""; 0]);
}

/// A question about a file that is not there, by each of as many senders as there are places for.
fn fill(case: &mut Case) {
    for (from, n) in (0..PLACES.all).map(|n| ((n / PLACES.of_key) as u8, n % PLACES.of_key)) {
        let told = case.say(from, &format!("f{n}"), b"abc", None).unwrap();
        assert!(matches!(told.verdict, Verdict::Missing { .. }));
    }
    case.desk.store.touch(later());
}

/// A time by which no test runs any more.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

#[tokio::test]
async fn question_waits_until_another_file_is_done() {
    let mut case = Case::new(false);
    fill(&mut case);
    assert_eq!(case.say(99, "a", b"abc", None).unwrap().verdict, Verdict::Waits);
    assert_eq!(case.say(98, "small", b"whole", Some(0)).unwrap().verdict, Verdict::Stored, "it needs no place");
    let mut said = Announcement::new(0, "f0".into(), 3, blake3::hash(b"abc"));
    said.at = Some(0);
    let from = Holder { key: PublicKey::from_bytes([0; 32]), host: None };
    let told = case.desk.take(Message {
        to: To { number: 0, ended: Arc::default() },
        from,
        said,
        data: Bytes::from_static(b"abc"),
    });
    let told: Vec<_> = told.into_iter().map(|told| (told.from.key.as_bytes()[0], told.verdict)).collect();
    assert_eq!(told, [(0, Verdict::Stored), (99, Verdict::Missing { missing: vec![(0, 3)] })]);
}

#[tokio::test]
async fn question_waits_until_another_file_was_silent() {
    let mut case = Case::new(false);
    fill(&mut case);
    assert_eq!(case.say(99, "a", b"abc", None).unwrap().verdict, Verdict::Waits);
    let asked = case.asked;
    assert_eq!(case.desk.settle(Done::Silence).len(), 0, "all are busy");
    assert!(case.desk.next_place.is_some());
    case.desk.store.touch(Instant::now() - Duration::from_secs(10));
    case.desk.next_place = Some(Instant::now());
    assert_eq!(case.settled().await, [(asked, Verdict::Missing { missing: vec![(0, 3)] })]);
    assert!(case.desk.next_place.is_none());
}

#[tokio::test]
async fn places_of_an_ended_session_go_to_the_next_question() {
    let mut case = Case::new(false);
    let interrupted = case.ended.clone();
    let missing = || Verdict::Missing { missing: vec![(0, 3)] };
    for n in 0..PLACES.of_key {
        assert_eq!(case.say(1, &format!("f{n}"), b"abc", None).unwrap().verdict, missing());
    }
    assert_eq!(case.say(1, "queued", b"abc", None).unwrap().verdict, Verdict::Waits);
    case.ended = Arc::default();
    assert_eq!(case.say(1, "a", b"abc", None).unwrap().verdict, Verdict::Waits);
    let asked = case.asked;
    interrupted.store(true, Ordering::Relaxed);
    assert_eq!(case.settled().await, [(asked, missing())]);
    assert_eq!(case.say(1, "b", b"abc", None).unwrap().verdict, missing());
}

#[tokio::test]
async fn question_without_a_slot_evicts_no_file() {
    let mut case = Case::new(false);
    fill(&mut case);
    assert_eq!(case.say(99, "a", b"abc", None).unwrap().verdict, Verdict::Waits);
    fs::write(case.dir.path().join("a"), "abc").unwrap();
    case.desk.store.touch(Instant::now() - Duration::from_secs(10));
    let asked = case.asked;
    let told = case.desk.settle(Done::Silence);
    assert_eq!(told.into_iter().map(|t| (t.to.number, t.verdict)).collect::<Vec<_>>(), [(asked, Verdict::Stored)]);
    let hidden = fs::read_dir(case.dir.path()).unwrap().count() - 1;
    assert_eq!(hidden, PLACES.all);
}

#[tokio::test]
async fn waiting_questions_are_bounded_for_each_sender() {
    let mut case = Case::new(false);
    let refused = |told: Option<Reply<To>>| matches!(told.unwrap().verdict, Verdict::Refused { .. });
    for n in 0..PLACES.of_key + WAITING.of_key {
        case.desk.store.touch(later());
        assert!(!refused(case.say(1, &format!("f{n}"), b"abc", None)), "{n}");
    }
    assert!(refused(case.say(1, "more", b"abc", None)));
    // Where too many wait in all, the last one of who has more gives way.
    for from in 2..=WAITING.all / WAITING.of_key {
        let places = if from * PLACES.of_key <= PLACES.all { PLACES.of_key } else { 0 };
        for n in 0..places + WAITING.of_key {
            case.desk.store.touch(later());
            assert!(!refused(case.say(from as u8, &format!("f{n}"), b"abc", None)), "{from} {n}");
        }
    }
    let told = case.say(99, "a", b"abc", None).unwrap();
    assert_eq!((told.from.key.as_bytes()[0] as usize, refused(Some(told))), (WAITING.all / WAITING.of_key, true));
    assert_eq!(case.desk.queue.len(), WAITING.all);
    assert!(refused(case.say(1, "part", &[0; 8], Some(1))));
}

/// As after a silence in which the file made room for another.
#[tokio::test]
async fn part_without_a_place_waits_as_a_question() {
    let mut case = Case::new(false);
    fill(&mut case);
    assert_eq!(case.say(99, "a", &[7; 200_000], Some(100_000)).unwrap().verdict, Verdict::Waits);
    assert!(case.say(99, "a", &[7; 200_000], Some(150_000)).is_none(), "once for a file");
    assert_eq!(case.desk.queue.iter().map(|queued| queued.data.len()).collect::<Vec<_>>(), [0]);
    case.desk.store.touch(Instant::now() - Duration::from_secs(10));
    case.desk.next_place = Some(Instant::now());
    assert_eq!(case.settled().await[0].1, Verdict::Missing { missing: vec![(0, 200_000)] });
    // With a place it is begun anew, and its sender hears of that once.
    let missing = vec![(0, 100_000)];
    assert_eq!(case.say(98, "b", &[7; 200_000], Some(100_000)).unwrap().verdict, Verdict::Missing { missing });
    assert!(case.say(98, "b", &[7; 200_000], Some(150_000)).is_none());
}
