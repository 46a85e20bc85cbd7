//! What strace(1) saw of a process: system calls, each with the places in the trace where it
//! began and where it ended.
//!
//! strace stops a thread when a call begins and when it has ended, and writes it down before the
//! thread goes on. So if one call ends above the line in which another begins, it was over before.

use std::collections::BTreeMap;

/// A system call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) name: String,
    /// Its arguments, as strace prints them: strings as `\x..`, descriptors as `7<path>`.
    pub(crate) args: String,
    pub(crate) began: usize,
    /// `usize::MAX` if that was not seen.
    pub(crate) ended: usize,
    /// Whether it returned something other than an error.
    pub(crate) ok: bool,
}

/// The calls in a trace of `strace -f`.
pub(crate) fn parse(text: &str) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let mut open: BTreeMap<&str, usize> = BTreeMap::new();
    for (line_number, line) in text.lines().enumerate() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some((_, end)) = rest.strip_prefix("<... ").and_then(|r| r.split_once(" resumed>")) {
            if let Some(event) = open.remove(pid).and_then(|n| events.get_mut(n)) {
                event.ended = line_number;
                event.ok = returned_well(end);
                event.args.push_str(end);
            }
            continue;
        }
        let Some((name, args)) = rest.split_once('(') else { continue };
        let whole = args.strip_suffix("<unfinished ...>");
        if whole.is_some() {
            open.insert(pid, events.len());
        }
        let (name, args) = (name.to_owned(), whole.unwrap_or(args).to_owned());
        let (ended, ok) = if whole.is_some() { (usize::MAX, false) } else { (line_number, returned_well(&args)) };
        events.push(Event { name, args, began: line_number, ended, ok });
    }
    events
}

fn returned_well(end: &str) -> bool {
    end.rsplit_once(" = ").is_some_and(|(_, value)| !value.starts_with('-') && !value.starts_with('?'))
}

/// Bytes as `strace -xx` prints them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("\\x{b:02x}")).collect()
}

impl Event {
    /// What the first argument, a descriptor, is open on.
    fn path(&self) -> Option<&str> {
        self.args.split_once('<')?.1.split_once('>').map(|(path, _)| path)
    }

    /// Whether it makes `change` stable, which was over before it. Of syncfs(2) only together with
    /// what comes after it in `all`: where there is no journal ext4 sends the device's flush before
    /// the last metadata is written, so a second one must follow.
    fn flushes(&self, change: &Event, all: &[Event], before: usize) -> bool {
        let of_it = match self.name.as_str() {
            "syncfs" => {
                let follows = |e: &Event| e.name == "fsync" && e.ok && e.began > self.ended && e.ended < before;
                all.iter().any(|e| follows(e) && e.path() == self.path())
            }
            "fsync" | "fdatasync" => self.path().is_some() && self.path() == change.path(),
            _ => false,
        };
        of_it && self.ok && self.began > change.ended
    }
}

/// Checks that the reply with `reply` in it was sent only after a flush of the change with
/// `change` in its arguments. `is_change` knows such calls by name.
pub(crate) fn check(events: &[Event], is_change: fn(&Event) -> bool, change: &str, reply: &str) -> Result<(), String> {
    let sent = events.iter().find(|e| is_send(e) && e.args.contains(reply)).ok_or("no reply was sent")?;
    // The change may be tried in more ways than one; the last that worked counts.
    let made = events.iter().rfind(|e| is_change(e) && e.ok && e.args.contains(change) && e.began < sent.began);
    let made = made.ok_or("no change was made before the reply")?;
    let flushed = events.iter().any(|e| e.flushes(made, events, sent.began) && e.ended < sent.began);
    if flushed { Ok(()) } else { Err(format!("no flush between {made:?} and {sent:?}")) }
}

fn is_send(event: &Event) -> bool {
    matches!(event.name.as_str(), "write" | "writev" | "sendto" | "sendmsg" | "sendmmsg")
}

#[test]
fn a_reply_before_the_flush_is_found() {
    let is_write: fn(&Event) -> bool = |e| e.name == "pwrite64";
    let check = |lines: &[&str]| check(&parse(&lines.join("\n")), is_write, "\\xaa", "\\xbb");
    let (write, sync) = (r#"1 pwrite64(7</f>, "\xaa", 1, 0) = 1"#, "2 fsync(8</f>) = 0");
    let send = r#"3 sendto(9<s>, "\xbb", 1, 0, NULL, 0) = 1"#;
    assert_eq!(check(&[write, sync, send]), Ok(()));
    let [sync_begins, sync_ends] = ["2 fsync(8</f> <unfinished ...>", "2 <... fsync resumed>) = 0"];
    assert_eq!(check(&[write, sync_begins, sync_ends, send]), Ok(()));
    let (all, root) = ("2 syncfs(6</>) = 0", "2 fsync(6</>) = 0");
    assert_eq!(check(&[write, all, root, send]), Ok(()));
    for wrong in [
        &[write, all, send][..],
        &[write, root, all, send],
        &[write, send, sync],
        &[sync, write, send],
        &[write, sync_begins, send, sync_ends],
        &[sync_begins, write, sync_ends, send],
        &[write, "2 fsync(8</g>) = 0", send],
        &[write, "2 fsync(8</f>) = -1 EIO (Input/output error)", send],
        &[sync, send],
        &[write, sync],
    ] {
        assert!(check(wrong).is_err(), "{wrong:?}");
    }
}
