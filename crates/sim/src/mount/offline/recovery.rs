//! What may have become of a tree after a crash of the mount, or after a step that failed halfway.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use remora_base::Time;

use super::model::{Content, Model, Seen, Step, View, difference, differences};

/// Age from which a change survives a loss of power: SEMANTICS.md says 1 s, and the disk is busy for a moment.
const SAFE_AGE: Duration = Duration::from_millis(1500);
/// How long the history goes back.
const HISTORY: Duration = Duration::from_secs(5);

/// Trees of the past, with the time of the step that made each, and what was synced.
#[derive(Default)]
pub(super) struct History {
    trees: VecDeque<Kept>,
    synced: VecDeque<Synced>,
}

struct Kept {
    since: Time,
    model: Model,
}

/// Contents of a file that fsync(2) acknowledged.
struct Synced {
    at: Time,
    data: Rc<Vec<u8>>,
}

/// What may be found.
pub(super) struct Possible {
    candidates: Vec<Model>,
    /// Files with contents that no step acknowledged.
    unknown: BTreeSet<String>,
    /// Changes between the candidates may be lost one by one.
    has_lost_power: bool,
    /// Contents that must be somewhere.
    synced: Vec<Rc<Vec<u8>>>,
}

impl History {
    /// The tree is `model` from now on.
    pub(super) fn push(&mut self, now: Time, model: &Model) {
        self.trees.push_back(Kept { since: now, model: model.clone() });
        while self.trees.get(1).is_some_and(|kept| now.since(kept.since) > HISTORY) {
            self.trees.pop_front();
        }
        while self.synced.front().is_some_and(|synced| now.since(synced.at) > HISTORY) {
            self.synced.pop_front();
        }
    }

    /// Whether a recent tree has a file with these contents.
    pub(super) fn has(&self, seen: &Seen) -> bool {
        self.trees.iter().any(|kept| kept.model.view().values().any(|known| known.content == seen.content))
    }

    pub(super) fn synced(&mut self, now: Time, data: Rc<Vec<u8>>) {
        self.synced.push_back(Synced { at: now, data });
    }

    /// After a kill while `running` was under way, the tree is the one before it or the one after it.
    pub(super) fn after_kill(model: &Model, running: Option<&Step>) -> Possible {
        let mut candidates = vec![model.clone()];
        let mut unknown = BTreeSet::new();
        if let Some(step) = running {
            let mut after = model.clone();
            if after.apply(step).is_ok() {
                unknown = step.written().map(|path| after.names_of(path)).unwrap_or_default();
                candidates.push(after);
            }
        }
        Possible { candidates, unknown, has_lost_power: false, synced: Vec::new() }
    }

    /// After a loss of power, each change of the last moments may be lost, but not what fsync(2) acknowledged.
    pub(super) fn after_power_loss(&self, now: Time, model: &Model, running: Option<&Step>) -> Possible {
        let mut possible = History::after_kill(model, running);
        let first = self.trees.iter().rposition(|kept| now.since(kept.since) >= SAFE_AGE).unwrap_or(0);
        let current = possible.candidates.clone();
        possible.candidates.extend(self.trees.iter().skip(first).map(|kept| kept.model.clone()));
        possible.has_lost_power = true;
        let has = |model: &Model, data: &Rc<Vec<u8>>| {
            let view = model.view();
            let mut files = view.iter().filter(|(path, _)| !possible.unknown.contains(*path));
            files.any(|(_, seen)| is_file_of(seen, data))
        };
        let is_current = |data: &&Rc<Vec<u8>>| current.iter().all(|model| has(model, data));
        possible.synced = self.synced.iter().map(|synced| &synced.data).filter(is_current).cloned().collect();
        possible
    }
}

fn is_file_of(seen: &Seen, data: &Rc<Vec<u8>>) -> bool {
    matches!(&seen.content, Content::File(found) if found == data)
}

impl Possible {
    /// What `found` has that was not possible.
    pub(super) fn violations(&self, found: &View) -> Vec<String> {
        if self.has_lost_power { self.unstable(found) } else { self.unlike_all(found) }
    }

    /// The differences to the candidate with the fewest.
    fn unlike_all(&self, found: &View) -> Vec<String> {
        let differences = |model: &Model| differences(&model.view(), found, &self.unknown);
        self.candidates.iter().map(differences).min_by_key(Vec::len).unwrap_or_default()
    }

    /// Differences where all candidates agree.
    fn unstable(&self, found: &View) -> Vec<String> {
        let views: Vec<View> = self.candidates.iter().map(Model::view).collect();
        let paths: BTreeSet<&String> = views.iter().flat_map(View::keys).chain(found.keys()).collect();
        let mut all = Vec::new();
        for path in paths.into_iter().filter(|path| !self.unknown.contains(*path)) {
            let seen: Vec<Option<&Seen>> = views.iter().map(|view| view.get(path)).collect();
            let is_same = |other: &&Seen| seen.iter().flatten().all(|seen| difference(seen, other).is_none());
            let present = seen.iter().flatten().count();
            // A time that was set a moment ago may be lost.
            let expected = seen.first().copied().flatten().cloned().map(|mut expected| {
                expected.mtime =
                    expected.mtime.filter(|_| seen.iter().flatten().all(|seen| seen.mtime == expected.mtime));
                expected
            });
            match (expected.as_ref(), found.get(path)) {
                (None, Some(_)) if present == 0 => all.push(format!("{path} is there")),
                (Some(expected), found) if present == seen.len() && is_same(&expected) => match found {
                    Some(found) => all.extend(difference(expected, found).map(|what| format!("{path} {what}"))),
                    None => all.push(format!("{path} is missing")),
                },
                _ => {}
            }
        }
        let is_there = |data: &&Rc<Vec<u8>>| found.values().any(|seen| is_file_of(seen, data));
        let lost = self.synced.iter().filter(|data| !is_there(data));
        all.extend(lost.map(|data| format!("a synced file of {} bytes is lost", data.len())));
        all
    }
}
