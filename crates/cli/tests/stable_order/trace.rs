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
    pub(crate) fn is_flush(&self) -> bool {
        matches!(self.name.as_str(), "fsync" | "fdatasync" | "syncfs")
    }

    /// What the first argument, a descriptor, is open on.
    fn path(&self) -> Option<&str> {
        self.args.split_once('<')?.1.split_once('>').map(|(path, _)| path)
    }

    /// Whether it puts on the disk what `wanted` says of `object`.
    fn flushes(&self, object: &str, wanted: &Wanted, all: &[Event], before: usize) -> bool {
        match self.name.as_str() {
            "syncfs" => wanted.syncs_all && (wanted.has_journal || self.is_flushed_again(all, before)),
            "fsync" => self.is_on(object, &wanted.root),
            "fdatasync" => wanted.data_will_do && self.is_on(object, &wanted.root),
            _ => false,
        }
    }

    /// Where there is no journal ext4 sends the device's flush before the last metadata is written, so a second
    /// one must follow a syncfs(2).
    fn is_flushed_again(&self, all: &[Event], before: usize) -> bool {
        let follows = |e: &Event| e.name == "fsync" && e.ok && e.began > self.ended && e.ended < before;
        all.iter().any(|e| follows(e) && e.path() == self.path())
    }

    /// Whether it is the one that gives an open file `object` as its name: the descriptor goes on to be shown without.
    fn gives_name(&self, object: &str) -> bool {
        let name = object.rsplit('/').next().unwrap_or_default();
        self.name == "linkat" && self.args.contains(&format!("\"{}\"", hex(name.as_bytes())))
    }

    fn is_on(&self, object: &str, root: &str) -> bool {
        let paths = [format!("{root}{object}"), if object.is_empty() { "/".into() } else { object.to_owned() }];
        paths.iter().any(|path| self.path().is_some_and(|seen| seen == path || seen == hex(path.as_bytes())))
    }
}

/// What must have happened before a reply.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Knows the system call that makes the change by name,
    pub(crate) is_change: fn(&Event) -> bool,
    /// and by this, which is in its arguments.
    pub(crate) change: String,
    /// The paths below the root of all that it changes, when it is done; nothing for the root.
    pub(crate) objects: Vec<String>,
    /// The root's path. A server that has it mounted for itself sees it as `/`.
    pub(crate) root: String,
    /// fdatasync(2) is enough: nothing but data is promised.
    pub(crate) data_will_do: bool,
    pub(crate) has_journal: bool,
    /// syncfs(2) puts names and attributes on the disk, too.
    pub(crate) syncs_all: bool,
    pub(crate) reply: String,
}

/// Checks that the reply was sent only after each of the objects was flushed, or everything, since the change.
pub(crate) fn check(events: &[Event], wanted: &Wanted) -> Result<(), String> {
    let sent = events.iter().find(|e| is_send(e) && e.args.contains(&wanted.reply)).ok_or("no reply was sent")?;
    // The change may be tried in more ways than one; the last that worked counts.
    let is_it = |e: &Event| (wanted.is_change)(e) && e.args.contains(&wanted.change);
    let made = events
        .iter()
        .rfind(|e| e.ok && e.began < sent.began && is_it(e))
        .ok_or("no change was made before the reply")?;
    let since: Vec<&Event> =
        events.iter().filter(|e| e.ok && e.began > made.ended && e.ended < sent.began && e.is_flush()).collect();
    for object in &wanted.objects {
        let by_descriptor = |e: &Event| e.name == "fsync" && made.gives_name(object) && e.path() == made.path();
        if !since.iter().any(|e| by_descriptor(e) || e.flushes(object, wanted, events, sent.began)) {
            return Err(format!("no flush of {object:?} between {made:?} and {sent:?}, but {since:?}"));
        }
    }
    Ok(())
}

pub(crate) fn is_send(event: &Event) -> bool {
    matches!(event.name.as_str(), "write" | "writev" | "sendto" | "sendmsg" | "sendmmsg")
}

#[test]
fn a_reply_before_the_flush_is_found() {
    let check = |lines: &[&str], objects: &[&str], [data_will_do, has_journal, syncs_all]: [bool; 3]| {
        let objects = objects.iter().map(|&o| o.to_owned()).collect();
        let is_change: fn(&Event) -> bool = |e| e.name == "pwrite64";
        let [change, reply] = ["\\xaa", "\\xbb"].map(str::to_owned);
        let root = "/srv".to_owned();
        let wanted = Wanted { is_change, change, objects, root, data_will_do, has_journal, syncs_all, reply };
        check(&parse(&lines.join("\n")), &wanted)
    };
    let (write, sync) = (r#"1 pwrite64(7</f>, "\xaa", 1, 0) = 1"#, "2 fsync(8</f>) = 0");
    let send = r#"3 sendto(9<s>, "\xbb", 1, 0, NULL, 0) = 1"#;
    let [sync_dir, sync_root] = [r"2 fsync(5<\x2f\x64>) = 0", "2 fsync(5</srv>) = 0"];
    let [sync_begins, sync_ends] = ["2 fsync(8</f> <unfinished ...>", "2 <... fsync resumed>) = 0"];
    let (all, root) = ("2 syncfs(6</>) = 0", "2 fsync(6</>) = 0");
    let (f, both, neither) = (&["/f"][..], &["/f", "/d"][..], [false, false, true]);
    assert_eq!(check(&[write, sync, send], f, neither), Ok(()));
    assert_eq!(check(&[write, sync_begins, sync_ends, send], f, neither), Ok(()));
    assert_eq!(check(&[write, sync_dir, sync, send], both, neither), Ok(()));
    assert_eq!(check(&[write, all, root, send], both, neither), Ok(()));
    assert_eq!(check(&[write, "2 fsync(8</srv/f>) = 0", sync_root, send], &["/f", ""], neither), Ok(()));
    assert_eq!(check(&[write, all, send], both, [false, true, true]), Ok(()));
    assert_eq!(check(&[write, "2 fdatasync(8</f>) = 0", send], f, [true, false, true]), Ok(()));
    for wrong in [
        &[write, all, send][..],
        &[write, root, all, send],
        &[write, send, sync],
        &[sync, write, send],
        &[write, sync_begins, send, sync_ends],
        &[sync_begins, write, sync_ends, send],
        &[write, "2 fsync(8</g>) = 0", send],
        &[write, "2 fsync(8</f>) = -1 EIO (Input/output error)", send],
        &[write, "2 fdatasync(8</f>) = 0", send],
        &[sync, send],
        &[write, sync],
    ] {
        assert!(check(wrong, f, neither).is_err(), "{wrong:?}");
    }
    for wrong in [&[write, sync, send][..], &[write, sync_dir, send], &[sync_dir, write, sync, send]] {
        assert!(check(wrong, both, neither).is_err(), "{wrong:?}");
    }
    assert!(check(&[write, all, root, send], f, [false; 3]).is_err(), "names were not told of");
}
