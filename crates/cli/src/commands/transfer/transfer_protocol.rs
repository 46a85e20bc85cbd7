//! Protocol of `remora send` and `remora recv`: ATP objects that begin with a line of JSON. The data of a part
//! follows its announcement; an answer has no data.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use bytes::{BufMut, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::output::escape;

/// The version of this language.
const VERSION: u32 = 1;
/// Bytes in the line of an announcement: a name with every byte escaped fits.
const ANNOUNCEMENT_MAX: usize = 4096;
/// Bytes in an answer: [`RANGES_MAX`] ranges fit.
const ANSWER_MAX: usize = 64 << 10;
/// Missing ranges in an answer, and in a file that is received.
pub(crate) const RANGES_MAX: usize = 1024;
/// Bytes of a file in one object, at most: with its line that is less than a receiver takes.
pub(crate) const PART_MAX: u64 = 32 << 20;
const _: () = assert!(PART_MAX as usize + ANNOUNCEMENT_MAX <= 64 << 20);
/// Smaller files are sent at once; for others the receiver is asked first.
pub(crate) const ASK_FROM: u64 = 64 << 10;
/// Characters of a reason that are shown.
const WHY_MAX: usize = 300;

/// A file, or a part of it: what the sender says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Announcement {
    /// Version of the protocol.
    remora: u32,
    /// The sender's number for it, which answers repeat.
    pub(crate) file: u32,
    /// What it is to be called: a path relative to the receiver's directory. One that ends with `/` is a directory's.
    pub(crate) name: String,
    /// Bytes in all of it.
    pub(crate) size: u64,
    /// BLAKE3 of all of it, in hexadecimal.
    #[serde(with = "hex")]
    pub(crate) hash: blake3::Hash,
    /// Its mode and time. Receivers from before these fields ignore them.
    #[serde(flatten)]
    pub(crate) kept: Kept,
    /// Where the bytes that follow belong; without it none follow, and the receiver is asked what
    /// it lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<u64>,
}

/// What is kept of a file or directory beside its bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<u32>,
    /// When its bytes changed last: seconds since 1970, and nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mtime: Option<(i64, u32)>,
}

impl From<&Metadata> for Kept {
    fn from(found: &Metadata) -> Kept {
        let nanos = u32::try_from(found.mtime_nsec()).unwrap_or(0);
        Kept { mode: Some(found.mode() & 0o777), mtime: Some((found.mtime(), nanos)) }
    }
}

/// What the receiver says of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// Version of the protocol.
    remora: u32,
    /// The sender's number for it.
    pub(crate) file: u32,
    /// What is to be said.
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
}

/// What becomes of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// These bytes of it are missing: pairs of where they begin and end.
    Missing {
        /// At most [`RANGES_MAX`].
        missing: Vec<(u64, u64)>,
    },
    /// It waits for a place among the files that are on their way; another answer follows. Senders from before this
    /// verdict ignore it.
    Waits,
    /// All of it is on the disk under its name.
    Stored,
    /// It is not wanted, or cannot be kept.
    Refused {
        /// Why, for people.
        why: String,
    },
}

/// Why an object is none of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Foreign(String);

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Announcement {
    /// The request for the parts that the receiver lacks.
    pub(crate) fn new(file: u32, name: String, size: u64, hash: blake3::Hash) -> Announcement {
        Announcement { remora: VERSION, file, name, size, hash, kept: Kept::default(), at: None }
    }

    /// With this mode and time.
    pub(crate) fn with(self, kept: Kept) -> Announcement {
        Announcement { kept, ..self }
    }

    /// Whether it is a directory that is announced.
    pub(crate) fn is_dir(&self) -> bool {
        self.name.ends_with('/')
    }

    /// The object that carries `data`, which belongs at `at`.
    pub(crate) fn part(&self, at: u64, data: &[u8]) -> serde_json::Result<Bytes> {
        line(&Announcement { at: Some(at), ..self.clone() }, data)
    }

    /// Whether a receiver reads an announcement of this name.
    pub(crate) fn fits(&self) -> bool {
        let longest = Announcement { at: Some(u64::MAX), ..self.clone() };
        serde_json::to_vec(&longest).is_ok_and(|line| line.len() < ANNOUNCEMENT_MAX)
    }

    /// The object without data.
    pub(crate) fn question(&self) -> serde_json::Result<Bytes> {
        line(self, &[])
    }

    /// Reads an object: the announcement and the bytes behind it.
    pub(crate) fn read(mut object: Bytes) -> Result<(Announcement, Bytes), Foreign> {
        let (announcement, used): (Announcement, usize) = read(&object, ANNOUNCEMENT_MAX)?;
        check(announcement.remora)?;
        let data = object.split_off(used);
        if announcement.at.is_none() && !data.is_empty() {
            return Err(Foreign("bytes without an offset".into()));
        }
        Ok((announcement, data))
    }
}

impl Answer {
    /// About the sender's `file`.
    pub(crate) fn new(file: u32, verdict: Verdict) -> Answer {
        Answer { remora: VERSION, file, verdict }
    }

    pub(crate) fn object(&self) -> serde_json::Result<Bytes> {
        line(self, &[])
    }

    /// Reads an object. Its reason, if any, can be shown.
    pub(crate) fn read(object: &[u8]) -> Result<Answer, Foreign> {
        let (mut answer, _): (Answer, usize) = read(object, ANSWER_MAX)?;
        check(answer.remora)?;
        if let Verdict::Refused { why } = &mut answer.verdict {
            *why = escape::printable(why.as_bytes()).chars().take(WHY_MAX).collect();
        }
        Ok(answer)
    }
}

/// How a hash is written.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(hash: &blake3::Hash, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hash.to_hex())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<blake3::Hash, D::Error> {
        blake3::Hash::from_hex(String::deserialize(from)?).map_err(D::Error::custom)
    }
}

fn line(head: &impl Serialize, data: &[u8]) -> serde_json::Result<Bytes> {
    let head = serde_json::to_vec(head)?;
    let mut object = BytesMut::with_capacity(head.len() + 1 + data.len());
    object.put_slice(&head);
    object.put_u8(b'\n');
    object.put_slice(data);
    Ok(object.freeze())
}

/// The line at the beginning, and its length with its end.
fn read<T: DeserializeOwned>(object: &[u8], max: usize) -> Result<(T, usize), Foreign> {
    let end = object.iter().take(max).position(|b| *b == b'\n');
    let end = end.ok_or_else(|| Foreign("not from remora send or recv".into()))?;
    let head = object.get(..end).unwrap_or_default();
    let head = serde_json::from_slice(head).map_err(|e| Foreign(format!("not from remora send or recv: {e}")))?;
    Ok((head, end + 1))
}

fn check(version: u32) -> Result<(), Foreign> {
    if version == VERSION {
        return Ok(());
    }
    Err(Foreign(format!("of version {version}, and this is version {VERSION}")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn announcement(name: &str) -> Announcement {
        Announcement::new(7, name.into(), 5, blake3::hash(b"hello"))
    }

    #[test]
    fn parts_and_questions_are_read_as_they_were_written() {
        let a = announcement(&"\u{1}".repeat(255));
        let (read, data) = Announcement::read(a.part(2, b"llo").unwrap()).unwrap();
        assert_eq!((read.at, &data[..]), (Some(2), &b"llo"[..]));
        assert_eq!(Announcement { at: None, ..read }, a);
        let (read, data) = Announcement::read(a.question().unwrap()).unwrap();
        assert_eq!((read, data.len()), (a, 0));
    }

    #[test]
    fn mode_and_time_cross_the_link_and_may_be_left_out() {
        let kept = Kept { mode: Some(0o640), mtime: Some((-1, 999_999_999)) };
        let a = Announcement { kept, ..announcement("a/b") };
        assert_eq!(Announcement::read(a.question().unwrap()).unwrap().0, a);
        let without = announcement("a").question().unwrap();
        assert!(!without.windows(4).any(|w| w == b"mode"), "as earlier senders have it");
        assert_eq!(Announcement::read(without).unwrap().0.kept, Kept::default());
        assert!(a.fits() && !announcement(&"x".repeat(ANNOUNCEMENT_MAX)).fits());
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        let missing = vec![(u64::MAX - 1, u64::MAX); RANGES_MAX];
        let refused = Verdict::Refused { why: "full".into() };
        for verdict in [Verdict::Missing { missing }, Verdict::Waits, Verdict::Stored, refused] {
            let answer = Answer::new(3, verdict);
            assert_eq!(Answer::read(&answer.object().unwrap()), Ok(answer));
        }
        let rude = Answer::new(3, Verdict::Refused { why: "\u{1b}[2J".repeat(1000) });
        let Verdict::Refused { why } = Answer::read(&rude.object().unwrap()).unwrap().verdict else { panic!() };
        assert!(why.chars().count() == WHY_MAX && why.starts_with("\\u{1b}"));
    }

    #[test]
    fn foreign_objects_are_recognised() {
        let long = [&b"{\"remora\":1,\"name\":\""[..], &[b'x'; ANNOUNCEMENT_MAX], b"\"}\n"].concat();
        let other = serde_json::to_string(&Announcement { remora: 2, ..announcement("x") }).unwrap() + "\n";
        let stray = [&announcement("x").question().unwrap()[..], b"data"].concat();
        for bad in [&b""[..], b"\n", b"hello\n", b"{\"remora\":1}\n", &long[..], other.as_bytes(), &stray[..]] {
            assert!(Announcement::read(Bytes::copy_from_slice(bad)).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Announcement::read(Bytes::from(bytes.clone()));
            let _ = Answer::read(&bytes);
        }
    }
}
