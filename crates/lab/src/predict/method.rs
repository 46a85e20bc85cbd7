//! Methods that choose the files to prefetch after an access.

use std::collections::BTreeMap;

use remora_cache::{FileKey, Predictor, PredictorConfig};
use serde::Serialize;

use super::neighbours::{AHEAD_MAX, CacheView, Neighbours};
use super::trace::{Access, AccessKind, Trace};

/// A way to choose what is prefetched into a cache that evicts the least recently used file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Nothing is prefetched.
    Lru,
    /// The file that the program opened after this one the last time.
    LastSuccessor,
    /// The following files of the directory, as the mount does.
    Neighbours,
    /// What the partial-match model expects.
    Model,
    /// Both of these.
    NeighboursAndModel,
}

impl Method {
    pub const ALL: [Method; 5] =
        [Method::Lru, Method::LastSuccessor, Method::Neighbours, Method::Model, Method::NeighboursAndModel];

    pub const fn name(self) -> &'static str {
        match self {
            Method::Lru => "LRU",
            Method::LastSuccessor => "last successor",
            Method::Neighbours => "neighbours",
            Method::Model => "model",
            Method::NeighboursAndModel => "neighbours + model",
        }
    }
}

/// A method at work on a trace.
pub(super) struct Prefetcher<'a> {
    trace: &'a Trace,
    successors: Option<LastSuccessors>,
    neighbours: Option<Neighbours>,
    model: Option<Predictor>,
    /// Current sizes; `None` of files that do not exist.
    sizes: Vec<Option<u64>>,
}

#[derive(Default)]
struct LastSuccessors {
    last: BTreeMap<usize, usize>,
    successors: BTreeMap<ProgramFile, usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ProgramFile {
    program: usize,
    file: usize,
}

impl LastSuccessors {
    /// The file that followed this one.
    fn accessed(&mut self, program: usize, file: usize) -> Option<usize> {
        let before = self.last.insert(program, file).filter(|before| *before != file);
        if let Some(before) = before {
            self.successors.insert(ProgramFile { program, file: before }, file);
        }
        self.successors.get(&ProgramFile { program, file }).copied()
    }
}

impl Prefetcher<'_> {
    pub(super) fn new(method: Method, trace: &Trace, model: PredictorConfig) -> Prefetcher<'_> {
        let has_model = matches!(method, Method::Model | Method::NeighboursAndModel);
        let has_neighbours = matches!(method, Method::Neighbours | Method::NeighboursAndModel);
        Prefetcher {
            trace,
            successors: (method == Method::LastSuccessor).then(LastSuccessors::default),
            neighbours: has_neighbours.then(|| Neighbours::new(&trace.files)),
            model: has_model.then(|| Predictor::new(model)),
            sizes: trace.files.iter().map(|file| file.size).collect(),
        }
    }

    /// The size of a file, if it exists.
    pub(super) fn size(&self, file: usize) -> Option<u64> {
        self.sizes.get(file).copied().flatten()
    }

    /// Learns from an access, and returns the files to prefetch after it. Only reads lead to any.
    pub(super) fn accessed(&mut self, access: &Access, view: CacheView) -> Vec<usize> {
        if let Some(size) = self.sizes.get_mut(access.file) {
            *size = (access.kind != AccessKind::Remove).then_some(access.size);
        }
        if access.kind != AccessKind::Read {
            return Vec::new();
        }
        let mut found = Vec::new();
        if let Some(successors) = &mut self.successors {
            found.extend(successors.accessed(access.program, access.file));
        }
        if let (Some(model), Some(program)) = (&mut self.model, self.trace.programs.get(access.program)) {
            model.observe(program.as_bytes(), FileKey(access.file as u64));
            let predictions = model.predict(program.as_bytes(), AHEAD_MAX);
            found.extend(predictions.into_iter().map(|prediction| prediction.file.0 as usize));
        }
        if let Some(neighbours) = &mut self.neighbours {
            found.extend(neighbours.opened(access.file, &self.sizes, view));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_successor_is_the_programs_own() {
        let mut successors = LastSuccessors::default();
        for (program, file, next) in
            [(0, 1, None), (0, 2, None), (1, 1, None), (1, 3, None), (0, 1, Some(2)), (1, 1, Some(3)), (0, 1, Some(2))]
        {
            assert_eq!(successors.accessed(program, file), next, "{program} {file}");
        }
    }
}
