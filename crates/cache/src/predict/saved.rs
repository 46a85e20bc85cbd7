//! The predictor's state as bytes, in XDR: a header, the programs, the nodes, and a checksum over all of it.

use std::fmt;

use bytes::Bytes;
use remora_wire::{Error, Reader, Xdr};

use super::trie::{FileKey, ListedNode};

/// The letters `RmPr` in ASCII.
const MAGIC: u32 = 0x526d_5072;
const VERSION: u32 = 1;
/// Bytes of the checksum at the end.
const CHECKSUM_LEN: usize = 8;

/// Why bytes are not the state of a predictor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PredictorStateError {
    Version,
    Checksum,
    Malformed,
    TooLarge,
}

impl fmt::Display for PredictorStateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PredictorStateError::Version => "the state of the predictor has another version",
            PredictorStateError::Checksum => "the state of the predictor is damaged: the checksum does not match",
            PredictorStateError::Malformed => "the state of the predictor is malformed",
            PredictorStateError::TooLarge => "the state of the predictor exceeds its limits",
        })
    }
}

impl std::error::Error for PredictorStateError {}

impl From<Error> for PredictorStateError {
    fn from(_: Error) -> PredictorStateError {
        PredictorStateError::Malformed
    }
}

/// What outlives a restart.
pub(super) struct SavedPredictor {
    /// Names of the programs; the one used longest ago comes first.
    pub(super) programs: Vec<Bytes>,
    /// Nodes of the tries; the programs' roots come before them.
    pub(super) nodes: Vec<ListedNode>,
}

impl Xdr for ListedNode {
    fn encode(&self, out: &mut Vec<u8>) {
        self.parent.encode(out);
        self.file.0.encode(out);
        self.count.encode(out);
    }

    fn decode(r: &mut Reader) -> Result<ListedNode, Error> {
        Ok(ListedNode { parent: Xdr::decode(r)?, file: FileKey(Xdr::decode(r)?), count: Xdr::decode(r)? })
    }
}

pub(super) fn encode(saved: &SavedPredictor) -> Bytes {
    let mut out = Vec::with_capacity(64 + 16 * saved.nodes.len());
    MAGIC.encode(&mut out);
    VERSION.encode(&mut out);
    (saved.programs.len() as u32).encode(&mut out);
    saved.programs.iter().for_each(|name| name.encode(&mut out));
    (saved.nodes.len() as u32).encode(&mut out);
    saved.nodes.iter().for_each(|node| node.encode(&mut out));
    checksum(&out).encode(&mut out);
    Bytes::from(out)
}

pub(super) fn decode(mut state: Bytes) -> Result<SavedPredictor, PredictorStateError> {
    let mut header = Reader::new(state.clone());
    if u32::decode(&mut header)? != MAGIC {
        return Err(PredictorStateError::Malformed);
    }
    if u32::decode(&mut header)? != VERSION {
        return Err(PredictorStateError::Version);
    }
    let body_len = state.len().checked_sub(CHECKSUM_LEN).ok_or(PredictorStateError::Malformed)?;
    let sum = u64::decode(&mut Reader::new(state.split_off(body_len)))?;
    if sum != checksum(&state) {
        return Err(PredictorStateError::Checksum);
    }
    let mut body = Reader::new(state);
    body.fixed(8)?;
    let programs = body.array(u32::MAX)?;
    let nodes = body.array(u32::MAX)?;
    match body.remaining() {
        0 => Ok(SavedPredictor { programs, nodes }),
        _ => Err(PredictorStateError::Malformed),
    }
}

/// FNV-1a, 64 bits: finds accidental damage.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
