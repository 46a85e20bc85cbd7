//! The model of the files that programs open, with the names of these files.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::node::Location;
use crate::predict::{FileKey, Prediction, Predictor, PredictorConfig, PredictorStateError};

/// Files that are expected at a time.
const FILES_MAX: usize = 32;
/// Names that are kept; then all are dropped, and learned again when they are opened.
const NAMES_MAX: usize = 1 << 14;

/// The model, and the names of its files.
#[derive(Debug)]
pub(crate) struct Foresight {
    predictor: Predictor,
    names: BTreeMap<FileKey, Location>,
}

impl Default for Foresight {
    fn default() -> Foresight {
        Foresight { predictor: Predictor::new(PredictorConfig::default()), names: BTreeMap::new() }
    }
}

impl Foresight {
    /// The model as bytes.
    pub(crate) fn export(&self) -> Bytes {
        self.predictor.export()
    }

    /// Goes on with a model that was exported.
    pub(crate) fn import(&mut self, model: Bytes) -> Result<(), PredictorStateError> {
        self.predictor = Predictor::import(PredictorConfig::default(), model)?;
        Ok(())
    }

    /// A program opened the file with this name in the directory with this number.
    pub(crate) fn observe(&mut self, program: &[u8], dir_fileid: u64, at: Location) {
        let file = key_of(dir_fileid, &at.name);
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        self.names.insert(file, at);
        self.predictor.observe(program, file);
    }

    /// The files that a program is expected to open next.
    pub(crate) fn predict(&self, program: &[u8]) -> Vec<Prediction> {
        self.predictor.predict(program, FILES_MAX)
    }

    /// The name of a file, if it was opened since the mount.
    pub(crate) fn name_of(&self, file: FileKey) -> Option<&Location> {
        self.names.get(&file)
    }
}

/// FNV-1a of the directory's number and the name.
fn key_of(dir_fileid: u64, name: &[u8]) -> FileKey {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    FileKey(dir_fileid.to_be_bytes().iter().chain(name).fold(0xcbf2_9ce4_8422_2325, step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeId;

    #[test]
    fn names_are_bounded_and_learned_again() {
        let mut foresight = Foresight::default();
        let at = |n: usize| Location { dir: NodeId::ROOT, name: n.to_string().into() };
        (0..=NAMES_MAX).for_each(|n| foresight.observe(b"a", 1, at(n)));
        assert_eq!(foresight.names.len(), 1);
        let file = key_of(1, NAMES_MAX.to_string().as_bytes());
        assert_eq!(foresight.name_of(file).map(|at| at.name.clone()), Some(at(NAMES_MAX).name));
        assert_ne!(key_of(1, b"a"), key_of(2, b"a"));
    }
}
