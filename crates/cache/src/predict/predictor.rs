//! The predictor: a trie for each program, and the contexts in which its next file is expected.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::saved::{self, PredictorStateError, SavedPredictor};
use super::trie::{FileKey, NodeId, Trie};

/// Bytes of a program's name that count.
pub(super) const NAME_MAX: usize = 32;

/// Limits and thresholds of a [`Predictor`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PredictorConfig {
    /// Maximum nodes of all tries together, each about 40 bytes.
    pub nodes_max: usize,
    /// Maximum programs; of more, the half that was used longest ago is forgotten.
    pub programs_max: usize,
    /// Maximum files in a context.
    pub order_max: u32,
    /// Probability below which a sequence of files is not followed further.
    pub threshold: f64,
    /// Times that a context is taken to have been followed by files not seen there yet.
    pub escape: f64,
}

impl Default for PredictorConfig {
    fn default() -> PredictorConfig {
        PredictorConfig { nodes_max: 1 << 16, programs_max: 256, order_max: 3, threshold: 0.6, escape: 0.25 }
    }
}

impl PredictorConfig {
    /// Nodes that one file may add.
    fn growth_max(&self) -> usize {
        self.order_max as usize + 1
    }
}

/// A file that a program is expected to open.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    pub file: FileKey,
    /// Probability that it and all predicted before it follow.
    pub probability: f64,
}

/// A node that the latest files of a program lead to.
#[derive(Clone, Copy, Debug)]
struct Context {
    node: NodeId,
    /// Number of these files.
    depth: u32,
}

#[derive(Clone, Debug)]
struct Program {
    root: NodeId,
    /// The shortest first.
    contexts: Vec<Context>,
    last: Option<FileKey>,
    /// When it was observed last, in files of all programs.
    used: u64,
}

/// Predicts the files that programs open next. Its memory is bounded by its configuration.
#[derive(Clone, Debug)]
pub struct Predictor {
    config: PredictorConfig,
    trie: Trie,
    programs: BTreeMap<Bytes, Program>,
    observed: u64,
}

impl Predictor {
    pub fn new(config: PredictorConfig) -> Predictor {
        let config = PredictorConfig {
            nodes_max: config.nodes_max.max(4 * config.growth_max()),
            programs_max: config.programs_max.max(2),
            ..config
        };
        Predictor { config, trie: Trie::default(), programs: BTreeMap::new(), observed: 0 }
    }

    /// Number of nodes in use.
    pub fn nodes(&self) -> usize {
        self.trie.len()
    }

    /// Number of programs known.
    pub fn programs(&self) -> usize {
        self.programs.len()
    }

    /// A program opened a file. The same file again changes nothing.
    pub fn observe(&mut self, program: &[u8], file: FileKey) {
        let name = name_of(program);
        self.make_room();
        if !self.programs.contains_key(name) {
            self.add_program(name);
        }
        let Some(program) = self.programs.get_mut(name) else { return };
        self.observed += 1;
        program.used = self.observed;
        if program.last == Some(file) {
            return;
        }
        program.last = Some(file);
        let mut contexts = Vec::with_capacity(self.config.growth_max());
        let root = Context { node: program.root, depth: 0 };
        for context in std::iter::once(&root).chain(&program.contexts) {
            let counted = self.trie.count(context.node, file);
            // A pattern grows by one node for each of its instances. The first node is no pattern yet.
            let may_grow = !counted.is_new || context.depth == 0;
            if may_grow && context.depth < self.config.order_max {
                contexts.push(Context { node: counted.node, depth: context.depth + 1 });
            }
        }
        program.contexts = contexts;
    }

    /// The files that a program is expected to open next, in their order, at most `count`.
    pub fn predict(&self, program: &[u8], count: usize) -> Vec<Prediction> {
        let mut predictions: Vec<Prediction> = Vec::new();
        let Some(program) = self.programs.get(name_of(program)) else { return predictions };
        let mut contexts = program.contexts.clone();
        let mut probability = 1.0;
        while predictions.len() < count {
            let Some(next) = contexts.iter().rev().find_map(|context| self.trie.likeliest(context.node)) else { break };
            probability *= f64::from(next.count) / (f64::from(next.total) + self.config.escape);
            let is_repeated = || predictions.iter().any(|earlier| earlier.file == next.file);
            if probability < self.config.threshold || is_repeated() {
                break;
            }
            predictions.push(Prediction { file: next.file, probability });
            contexts = self.followed(program.root, &contexts, next.file);
        }
        predictions
    }

    /// The contexts after one more file.
    fn followed(&self, root: NodeId, contexts: &[Context], file: FileKey) -> Vec<Context> {
        let root = Context { node: root, depth: 0 };
        let longer = |context: &Context| {
            let node = self.trie.child(context.node, file)?;
            (context.depth < self.config.order_max).then_some(Context { node, depth: context.depth + 1 })
        };
        std::iter::once(&root).chain(contexts).filter_map(longer).collect()
    }

    /// Forgets until one more file fits: halves all counts, and drops those that become 0.
    fn make_room(&mut self) {
        if self.trie.len() + self.config.growth_max() <= self.config.nodes_max {
            return;
        }
        while self.trie.len() > self.config.nodes_max / 4 * 3 {
            self.rebuild(Trie::halve);
        }
    }

    fn add_program(&mut self, name: &[u8]) {
        if self.programs.len() >= self.config.programs_max {
            let mut used: Vec<u64> = self.programs.values().map(|program| program.used).collect();
            used.sort_unstable();
            let median = used.get(used.len() / 2).copied().unwrap_or(u64::MAX);
            self.programs.retain(|_, program| program.used >= median);
            self.rebuild(Trie::prune);
        }
        let program = Program { root: self.trie.root(), contexts: Vec::new(), last: None, used: self.observed };
        self.programs.insert(Bytes::copy_from_slice(name), program);
    }

    /// Replaces the trie. The programs start anew in it, because it has other nodes.
    fn rebuild(&mut self, change: impl Fn(&mut Trie, &mut [NodeId])) {
        let mut roots: Vec<NodeId> = self.programs.values().map(|program| program.root).collect();
        change(&mut self.trie, &mut roots);
        for (program, root) in self.programs.values_mut().zip(roots) {
            program.root = root;
            program.contexts.clear();
        }
    }

    /// The state as bytes, for [`Predictor::import`]. The latest files of the programs are no part of it.
    pub fn export(&self) -> Bytes {
        let mut used: Vec<(&Bytes, &Program)> = self.programs.iter().collect();
        used.sort_by_key(|(_, program)| program.used);
        let roots: Vec<NodeId> = used.iter().map(|(_, program)| program.root).collect();
        let programs = used.into_iter().map(|(name, _)| name.clone()).collect();
        saved::encode(&SavedPredictor { programs, nodes: self.trie.list(&roots) })
    }

    /// A predictor from the bytes of [`Predictor::export`].
    pub fn import(config: PredictorConfig, state: Bytes) -> Result<Predictor, PredictorStateError> {
        let mut predictor = Predictor::new(config);
        let saved = saved::decode(state)?;
        if saved.programs.len() > predictor.config.programs_max || saved.nodes.len() > predictor.config.nodes_max {
            return Err(PredictorStateError::TooLarge);
        }
        let depth_max = predictor.config.order_max + 1;
        let (trie, roots) = Trie::from_list(saved.programs.len() as u32, &saved.nodes, depth_max)
            .ok_or(PredictorStateError::Malformed)?;
        predictor.trie = trie;
        for (name, root) in saved.programs.into_iter().zip(roots) {
            predictor.observed += 1;
            let program = Program { root, contexts: Vec::new(), last: None, used: predictor.observed };
            if name.len() > NAME_MAX || predictor.programs.insert(name, program).is_some() {
                return Err(PredictorStateError::Malformed);
            }
        }
        Ok(predictor)
    }
}

/// The part of a program's name that counts.
fn name_of(program: &[u8]) -> &[u8] {
    program.get(..NAME_MAX).unwrap_or(program)
}
