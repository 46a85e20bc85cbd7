//! The predictor by its public interface: what it predicts, its bounds, and its state as bytes.

use bytes::Bytes;
use proptest::prelude::*;
use remora_cache::{FileKey, Predictor, PredictorConfig, PredictorStateError};

const SMALL: PredictorConfig =
    PredictorConfig { nodes_max: 64, programs_max: 4, order_max: 3, threshold: 0.55, escape: 0.25 };

/// An open of a file by the program of this number.
#[derive(Clone, Copy, Debug)]
struct Open {
    program: u8,
    file: u8,
}

fn observe_all(predictor: &mut Predictor, program: &[u8], files: &[u64]) {
    files.iter().for_each(|file| predictor.observe(program, FileKey(*file)));
}

fn predicted(predictor: &Predictor, program: &[u8], count: usize) -> Vec<u64> {
    predictor.predict(program, count).into_iter().map(|prediction| prediction.file.0).collect()
}

fn trained(opens: &[Open]) -> Predictor {
    let mut predictor = Predictor::new(SMALL);
    opens.iter().for_each(|open| predictor.observe(&[open.program], FileKey(open.file.into())));
    predictor
}

fn opens(count_max: usize) -> impl Strategy<Value = Vec<Open>> {
    let open = (0..8u8, 0..12u8).prop_map(|(program, file)| Open { program, file });
    proptest::collection::vec(open, 0..count_max)
}

#[test]
fn repeated_sequence_is_predicted_in_its_order() {
    for count in [0, 1, 3, 5] {
        let mut predictor = Predictor::new(PredictorConfig::default());
        for _ in 0..6 {
            observe_all(&mut predictor, b"cc", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        }
        observe_all(&mut predictor, b"cc", &[1]);
        let expected: Vec<u64> = (2..2 + count).collect();
        assert_eq!(predicted(&predictor, b"cc", count as usize), expected);
    }
}

#[test]
fn longer_context_decides_between_successors() {
    let mut predictor = Predictor::new(PredictorConfig::default());
    for _ in 0..6 {
        observe_all(&mut predictor, b"cc", &[1, 5, 2, 3, 5, 4]);
    }
    observe_all(&mut predictor, b"cc", &[1, 5]);
    assert_eq!(predicted(&predictor, b"cc", 1), [2]);
    observe_all(&mut predictor, b"cc", &[2, 3, 5]);
    assert_eq!(predicted(&predictor, b"cc", 1), [4]);
}

#[test]
fn programs_have_successors_of_their_own() {
    let mut predictor = Predictor::new(PredictorConfig::default());
    for _ in 0..4 {
        observe_all(&mut predictor, b"a", &[1, 2]);
        observe_all(&mut predictor, b"b", &[1, 3]);
    }
    observe_all(&mut predictor, b"a", &[1]);
    observe_all(&mut predictor, b"b", &[1]);
    assert_eq!((predicted(&predictor, b"a", 1), predicted(&predictor, b"b", 1)), (vec![2], vec![3]));
    assert_eq!(predicted(&predictor, b"c", 1), [0; 0]);
}

#[test]
fn uncertain_successor_is_not_predicted() {
    let mut predictor = Predictor::new(PredictorConfig { order_max: 1, ..PredictorConfig::default() });
    for _ in 0..10 {
        observe_all(&mut predictor, b"a", &[1, 2, 1, 3]);
    }
    observe_all(&mut predictor, b"a", &[1]);
    assert_eq!(predicted(&predictor, b"a", 4), [0; 0]);
}

#[test]
fn file_opened_again_at_once_changes_nothing() {
    let mut predictor = Predictor::new(PredictorConfig::default());
    observe_all(&mut predictor, b"a", &[1, 2, 1, 1, 1]);
    assert_eq!(predicted(&predictor, b"a", 1), [2]);
}

#[test]
fn new_habit_replaces_an_old_one() {
    let mut predictor = Predictor::new(PredictorConfig { order_max: 1, ..PredictorConfig::default() });
    (0..1000).for_each(|_| observe_all(&mut predictor, b"a", &[1, 2]));
    (0..200).for_each(|_| observe_all(&mut predictor, b"a", &[1, 3]));
    observe_all(&mut predictor, b"a", &[1]);
    assert_eq!(predicted(&predictor, b"a", 1), [3]);
}

#[test]
fn imported_predictor_predicts_as_the_exported_one() {
    let mut predictor = Predictor::new(PredictorConfig::default());
    for _ in 0..6 {
        observe_all(&mut predictor, b"cc", &[1, 2, 3, 4]);
    }
    let mut imported = Predictor::import(PredictorConfig::default(), predictor.export()).unwrap();
    observe_all(&mut imported, b"cc", &[1]);
    assert_eq!(predicted(&imported, b"cc", 3), [2, 3, 4]);
}

#[test]
fn state_of_another_version_or_size_is_refused() {
    let import = |config, state| Predictor::import(config, state).map(drop);
    let mut state = trained(&[]).export().to_vec();
    state[7] = 2;
    assert_eq!(import(SMALL, Bytes::from(state)), Err(PredictorStateError::Version));
    let mut large = Predictor::new(PredictorConfig::default());
    (0..500).for_each(|file| observe_all(&mut large, b"a", &[file]));
    assert_eq!(import(SMALL, large.export()), Err(PredictorStateError::TooLarge));
    let deep: Vec<u64> = (0..6).cycle().take(60).collect();
    let mut long = Predictor::new(PredictorConfig { order_max: 8, ..SMALL });
    observe_all(&mut long, b"a", &deep);
    assert_eq!(import(SMALL, long.export()), Err(PredictorStateError::Malformed));
}

proptest! {
    #[test]
    fn memory_stays_within_its_limits(opens in opens(600)) {
        let mut predictor = Predictor::new(SMALL);
        for open in opens {
            predictor.observe(&[open.program], FileKey(open.file.into()));
            prop_assert!(predictor.nodes() <= SMALL.nodes_max && predictor.programs() <= SMALL.programs_max);
            prop_assert!(predictor.predict(&[open.program], 16).len() <= 16);
        }
    }

    #[test]
    fn import_of_an_export_is_the_identity(first in opens(300), then in opens(60)) {
        let exported = trained(&first).export();
        let import = || Predictor::import(SMALL, exported.clone()).unwrap();
        let [mut one, mut other] = [import(), import()];
        prop_assert_eq!(one.export(), exported.clone());
        for open in then {
            one.observe(&[open.program], FileKey(open.file.into()));
            other.observe(&[open.program], FileKey(open.file.into()));
            prop_assert_eq!(one.predict(&[open.program], 8), other.predict(&[open.program], 8));
        }
        prop_assert_eq!(one.export(), other.export());
    }

    #[test]
    fn damaged_state_is_refused(opens in opens(100), at in any::<prop::sample::Index>(), bit in 0..8u32) {
        let mut state = trained(&opens).export().to_vec();
        let at = at.index(state.len());
        state[at] ^= 1 << bit;
        prop_assert!(Predictor::import(SMALL, Bytes::from(state)).is_err());
    }

    #[test]
    fn truncated_state_is_refused(opens in opens(100), len in any::<prop::sample::Index>()) {
        let state = trained(&opens).export();
        prop_assert!(Predictor::import(SMALL, state.slice(..len.index(state.len()))).is_err());
    }

    #[test]
    fn any_bytes_are_refused_or_imported(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Predictor::import(SMALL, Bytes::from(bytes));
    }
}
