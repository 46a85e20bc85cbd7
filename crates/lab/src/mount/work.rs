//! Works: the files they need, the shell steps whose time is measured, and the files they must leave behind.
//!
//! A step runs on the mobile with `$M`, the mounted directory, and `$L`, a local one. It is written for dash and
//! busybox. A step that measures parts of itself prints `KIND BEGIN END` in seconds of the machine's uptime, whose
//! resolution is 10 ms.

use std::time::Duration;

use remora_sim::copy::Direction;
use serde::Serialize;

/// Bytes of the file that is read or written alone.
pub(super) const LARGE: u64 = 1 << 20;
/// Bytes of the file that is written beside others.
pub(super) const BULK: u64 = 4 << 20;
/// Bytes of a document.
pub(super) const DOCUMENT: u64 = 20 << 10;
/// Documents that may be opened beside the large write.
pub(super) const DOCUMENTS: usize = 60;
/// Time between the two listings of which the second may not be slower than the first.
const LATER: Duration = Duration::from_secs(600);

/// What a program does on a mount.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    List,
    GitStatus,
    Read,
    Write,
    Save,
    Untar,
    Make,
    Beside,
}

/// A figure of a work, in seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    ListCold,
    ListAgain,
    ListLater,
    StatusFirst,
    StatusAgain,
    Read,
    Write,
    /// Median of five saves.
    Save,
    Untar,
    Make,
    BulkAlone,
    BulkBeside,
    DocumentMedian,
    #[serde(rename = "document-95")]
    Document95,
    NoteMedian,
    #[serde(rename = "note-95")]
    Note95,
}

/// A measured part of a work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) script: &'static str,
    /// Idle time before the step.
    pub(super) pause: Duration,
    pub(super) figures: Figures,
}

/// Where the figures of a step come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Figures {
    /// The time that the step takes.
    Whole(Measure),
    /// The lines that it prints.
    Printed(&'static [Printed]),
}

/// A measure of the lines of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Printed {
    pub(super) measure: Measure,
    pub(super) kind: &'static str,
    pub(super) percent: usize,
}

const fn printed(measure: Measure, kind: &'static str, percent: usize) -> Printed {
    Printed { measure, kind, percent }
}

const SAVES: &[Printed] = &[printed(Measure::Save, "save", 50)];
const BESIDE: &[Printed] = &[
    printed(Measure::BulkBeside, "bulk", 50),
    printed(Measure::DocumentMedian, "document", 50),
    printed(Measure::Document95, "document", 95),
    printed(Measure::NoteMedian, "note", 50),
    printed(Measure::Note95, "note", 95),
];

const LIST: &str = "ls -lR \"$M/tree\" >/dev/null";
const STATUS: &str = "cd \"$M/repository\" && git status >/dev/null";
const READ: &str = "cat \"$M/large\" >/dev/null";
const WRITE: &str = "dd if=\"$L/large\" of=\"$M/large-copy\" bs=64k conv=fsync 2>/dev/null";
const SAVE: &str = r#"
for i in 1 2 3 4 5; do
  read -r a _ </proc/uptime
  dd if="$L/document" of="$M/.letter.tmp" bs=20480 conv=fsync 2>/dev/null || exit 1
  mv -f "$M/.letter.tmp" "$M/letter" || exit 1
  read -r b _ </proc/uptime
  echo "save $a $b"
  sleep 1
done
"#;
const UNTAR: &str = "cd \"$M/unpacked\" && tar xf \"$L/files.tar\"";
const MAKE: &str = "make -s -C \"$M/project\"";
const BULK_ALONE: &str = "dd if=\"$L/bulk\" of=\"$M/bulk-alone\" bs=64k conv=fsync 2>/dev/null";
/// A document is opened and a note made every second until the large file is written.
const BULK_BESIDE: &str = r#"
read -r begin _ </proc/uptime
dd if="$L/bulk" of="$M/bulk-beside" bs=64k conv=fsync 2>/dev/null & bulk=$!
every() {
  i=0
  while sleep 1 && [ $i -lt 60 ] && kill -0 $bulk 2>/dev/null; do
    i=$((i+1))
    read -r a _ </proc/uptime
    $1 || exit 1
    read -r b _ </proc/uptime
    echo "$1 $a $b"
  done
}
document() { cat "$M/documents/$i" >/dev/null; }
note() { printf %0100d 0 >"$M/notes/$i"; }
every document & documents=$!
every note & notes=$!
wait $bulk || exit 1
read -r end _ </proc/uptime
echo "bulk $begin $end"
wait $documents && wait $notes
"#;

impl Work {
    pub const ALL: [Work; 8] =
        [Work::List, Work::GitStatus, Work::Read, Work::Write, Work::Save, Work::Untar, Work::Make, Work::Beside];

    pub fn name(self) -> &'static str {
        match self {
            Work::List => "list",
            Work::GitStatus => "git-status",
            Work::Read => "read",
            Work::Write => "write",
            Work::Save => "save",
            Work::Untar => "untar",
            Work::Make => "make",
            Work::Beside => "beside",
        }
    }

    pub fn named(name: &str) -> Option<Work> {
        Work::ALL.into_iter().find(|w| w.name() == name)
    }

    /// The measured steps, in order. `long`: also those that need an idle time of ten minutes.
    pub(super) fn steps(self, long: bool) -> Vec<Step> {
        let step = |script, figures| Step { script, pause: Duration::ZERO, figures };
        let whole = |script, measure| step(script, Figures::Whole(measure));
        match self {
            Work::List => {
                let mut steps = vec![whole(LIST, Measure::ListCold), whole(LIST, Measure::ListAgain)];
                let later = Step { pause: LATER, ..whole(LIST, Measure::ListLater) };
                steps.extend(long.then_some(later));
                steps
            }
            Work::GitStatus => vec![whole(STATUS, Measure::StatusFirst), whole(STATUS, Measure::StatusAgain)],
            Work::Read => vec![whole(READ, Measure::Read)],
            Work::Write => vec![whole(WRITE, Measure::Write)],
            Work::Save => vec![step(SAVE, Figures::Printed(SAVES))],
            Work::Untar => vec![whole(UNTAR, Measure::Untar)],
            Work::Make => vec![whole(MAKE, Measure::Make)],
            Work::Beside => {
                vec![whole(BULK_ALONE, Measure::BulkAlone), step(BULK_BESIDE, Figures::Printed(BESIDE))]
            }
        }
    }

    /// Programs that the steps need besides those of busybox.
    pub(super) fn programs(self) -> &'static [&'static str] {
        match self {
            Work::GitStatus => &["git"],
            Work::Make => &["make", "gcc"],
            _ => &[],
        }
    }

    /// Files on the server (first) that must equal local ones (second) after the steps.
    pub(super) fn copies(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Work::Write => &[("large-copy", "large")],
            Work::Save => &[("letter", "document")],
            Work::Untar => &[("unpacked/f-0", "f-0"), ("unpacked/f-199", "f-199")],
            Work::Beside => &[("bulk-alone", "bulk"), ("bulk-beside", "bulk")],
            _ => &[],
        }
    }
}

impl Measure {
    pub const ALL: [Measure; 16] = [
        Measure::ListCold,
        Measure::ListAgain,
        Measure::ListLater,
        Measure::StatusFirst,
        Measure::StatusAgain,
        Measure::Read,
        Measure::Write,
        Measure::Save,
        Measure::Untar,
        Measure::Make,
        Measure::BulkAlone,
        Measure::BulkBeside,
        Measure::DocumentMedian,
        Measure::Document95,
        Measure::NoteMedian,
        Measure::Note95,
    ];

    /// The measured work and its figure.
    pub fn title(self) -> &'static str {
        match self {
            Measure::ListCold => "ls -lR, 2000 files, cold",
            Measure::ListAgain => "ls -lR again",
            Measure::ListLater => "ls -lR after 10 min",
            Measure::StatusFirst => "git status, 2000 files, first",
            Measure::StatusAgain => "git status again",
            Measure::Read => "read 1 MiB",
            Measure::Write => "write 1 MiB, fsync",
            Measure::Save => "save 20 KB",
            Measure::Untar => "tar x, 200 files",
            Measure::Make => "make, 11 C files",
            Measure::BulkAlone => "write 4 MiB alone",
            Measure::BulkBeside => "write 4 MiB beside others",
            Measure::DocumentMedian => "open 20 KB meanwhile, p50",
            Measure::Document95 => "open 20 KB meanwhile, p95",
            Measure::NoteMedian => "create 100 B meanwhile, p50",
            Measure::Note95 => "create 100 B meanwhile, p95",
        }
    }

    /// The transfer whose floor is known.
    pub(super) fn transfer(self) -> Option<(Direction, u64)> {
        match self {
            Measure::Read => Some((Direction::Read, LARGE)),
            Measure::Write => Some((Direction::Write, LARGE)),
            Measure::BulkAlone => Some((Direction::Write, BULK)),
            _ => None,
        }
    }
}

/// The lengths in seconds of the lines of one kind. Lines of other programs are ignored.
pub(super) fn lengths(said: &str, kind: &str) -> Vec<f64> {
    let length = |line: &str| {
        let mut words = line.split_whitespace();
        let (Some(named), Some(begin), Some(end), None) = (words.next(), words.next(), words.next(), words.next())
        else {
            return None;
        };
        let length = end.parse::<f64>().ok()? - begin.parse::<f64>().ok()?;
        (named == kind && length >= 0.0).then_some(length)
    };
    said.lines().filter_map(length).collect()
}
