//! What an evaluation of predictions uses.

use remora_cache::PredictorConfig;

use super::input::LoadedTrace;

/// What is evaluated.
#[derive(Clone, Debug)]
pub struct Options {
    pub traces: Vec<LoadedTrace>,
    pub model: PredictorConfig,
    /// Whether only the first half of each trace is used, which is how the model's parameters were chosen.
    pub is_tuning: bool,
    /// The command line that repeats the evaluation.
    pub command: String,
}
