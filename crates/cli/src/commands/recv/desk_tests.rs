//! Who waits for what, without a network.

use std::fs;

use super::super::store::AT_ONCE_MAX;
use super::*;

const SIZE: usize = AT_ONCE_MAX as usize + 1;

struct Case {
    dir: tempfile::TempDir,
    desk: Desk<u32>,
    asked: u32,
}

impl Case {
    fn new(overwrite: bool) -> Case {
        let dir = tempfile::tempdir().unwrap();
        let desk = Desk::new(Rules { dir: dir.path().into(), overwrite, size_max: u64::MAX });
        Case { dir, desk, asked: 0 }
    }

    /// Sends some of `whole`, or asks.
    fn say(&mut self, from: u8, name: &str, whole: &[u8], at: Option<usize>) -> Option<Told<u32>> {
        self.asked += 1;
        let mut said = Announcement::new(0, name.into(), whole.len() as u64, blake3::hash(whole));
        said.at = at.map(|at| at as u64);
        let data = at.map_or(Bytes::new(), |at| Bytes::copy_from_slice(&whole[at..]));
        self.desk.take(Message { to: self.asked, from: PublicKey::from_bytes([from; 32]), said, data })
    }

    async fn settled(&mut self) -> Vec<(u32, Verdict)> {
        let done = self.desk.next().await;
        self.desk.settle(done).into_iter().map(|told| (told.to, told.verdict)).collect()
    }
}

#[tokio::test]
async fn all_who_asked_are_answered_when_it_is_known() {
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
    let Some(Told { to: 6, verdict: Verdict::Refused { why }, .. }) = case.say(1, "a", &new, Some(0)) else { panic!() };
    assert!(why.contains("try again later"), "{why}");
    assert_eq!(case.settled().await, [1, 2, 3].map(|to| (to, Verdict::Stored)));
    assert_eq!(fs::read(case.dir.path().join("a")).unwrap(), b"small");
}

#[tokio::test]
async fn what_is_whole_gets_its_name_aside() {
    let mut case = Case::new(false);
    let [a, b] = [1, 2].map(|n| vec![n; SIZE]);
    // One of a sender's at a time, in turn; all of what is there is not needed again.
    for whole in [(1, "a", &a), (1, "b", &b), (2, "c", &b)] {
        let (from, name, bytes) = whole;
        assert!(case.say(from, name, bytes, Some(0)).is_none());
        assert!(case.say(from, name, bytes, Some(0)).is_none());
    }
    assert_eq!(case.desk.works.running_for().len(), 2);
    let mut told = Vec::new();
    for _ in 0..3 {
        told.extend(case.settled().await);
    }
    told.sort_by_key(|(to, _)| *to);
    assert_eq!(told, [1, 2, 3, 4, 5, 6].map(|to| (to, Verdict::Stored)));
    assert_eq!(fs::read(case.dir.path().join("b")).unwrap(), b);
}

#[tokio::test]
async fn who_waits_is_bounded() {
    let mut case = Case::new(false);
    fs::write(case.dir.path().join("a"), vec![1; SIZE]).unwrap();
    for n in 0..=OF_ONE_MAX {
        assert_eq!(case.say(1, "a", &[1; SIZE], None).is_some(), n == OF_ONE_MAX, "{n}");
    }
    assert_eq!(case.settled().await.len(), OF_ONE_MAX);
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
