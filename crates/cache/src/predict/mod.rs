//! Prediction of the files that a program opens next, from what it opened before.
//!
//! The model is a partial-match trie of file successors for each program (Kroeger and Long, 1996), which gets at most
//! one new node for each instance of a pattern, and whose children are followed while they are probable (EPCM, 2001).
//! Read `trie` first (counts of sequences), then `predictor` (programs and contexts), then `saved` (its state as bytes).

mod predictor;
mod saved;
mod trie;

pub use predictor::{Prediction, Predictor, PredictorConfig};
pub use saved::PredictorStateError;
pub use trie::FileKey;
