//! COMMITs, and restarts of the server.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use proptest::prelude::*;
use remora_client::Upload;
use remora_wire::nfs3::{Call, CommitOk, Fh, Stable, Wcc, WriteOk};

const BLOCK: u64 = 100;

fn fh() -> Fh {
    Fh(Bytes::from_static(b"file"))
}

fn wrote(piece: &Range<u64>, committed: Stable, verf: u8) -> WriteOk {
    WriteOk {
        wcc: Wcc { before: None, after: None },
        count: (piece.end - piece.start) as u32,
        committed,
        verf: [verf; 8],
    }
}

fn committed(verf: u8) -> CommitOk {
    CommitOk { wcc: Wcc { before: None, after: None }, verf: [verf; 8] }
}

/// The next WRITE: its piece and its stability.
fn next(file: &mut Upload) -> Option<(Range<u64>, Stable)> {
    let piece = file.poll(BLOCK as u32)?;
    let data = Bytes::from(vec![0; (piece.end - piece.start) as usize]);
    let Call::Write(write) = file.write(piece.start, data) else { panic!("a WRITE") };
    Some((piece, write.stable))
}

#[test]
fn single_write_needs_no_commit() {
    let mut file = Upload::new(fh(), 0..BLOCK);
    let (piece, stable) = next(&mut file).unwrap();
    assert_eq!(stable, Stable::FileSync);
    file.on_write(piece.clone(), &wrote(&piece, stable, 1)).unwrap();
    assert!(file.poll_commit().is_none() && file.is_done());
}

#[test]
fn upload_without_tail_commits_last() {
    let mut file = Upload::new(fh(), 0..3 * BLOCK);
    while let Some((piece, stable)) = next(&mut file) {
        assert!(stable == Stable::Unstable && file.poll_commit().is_none());
        file.on_write(piece.clone(), &wrote(&piece, stable, 1)).unwrap();
    }
    assert!(file.poll_commit().is_some() && file.poll_commit().is_none() && !file.is_done());
    file.on_commit(&committed(1)).unwrap();
    assert!(file.is_done());
}

#[test]
fn commit_is_sent_while_the_tail_is_in_flight() {
    let mut file = Upload::new(fh(), 0..6 * BLOCK);
    file.sync_tail(2 * BLOCK);
    let all: Vec<_> = std::iter::from_fn(|| next(&mut file)).collect();
    assert_eq!(
        all.iter().map(|p| p.1).collect::<Vec<_>>()[3..],
        [Stable::Unstable, Stable::FileSync, Stable::FileSync]
    );
    for (piece, stable) in &all[..4] {
        assert!(file.poll_commit().is_none(), "a COMMIT may overtake a WRITE that is on its way");
        file.on_write(piece.clone(), &wrote(piece, *stable, 1)).unwrap();
    }
    assert!(file.poll_commit().is_some());
    for (piece, stable) in &all[4..] {
        file.on_write(piece.clone(), &wrote(piece, *stable, 1)).unwrap();
    }
    assert!(!file.is_done(), "the COMMIT is not answered");
    file.on_commit(&committed(1)).unwrap();
    assert!(file.is_done() && file.poll_commit().is_none());
}

#[test]
fn restart_before_commit_rewrites_all_but_the_tail() {
    let mut file = Upload::new(fh(), 0..4 * BLOCK);
    file.sync_tail(BLOCK);
    let all: Vec<_> = std::iter::from_fn(|| next(&mut file)).collect();
    for (piece, stable) in &all {
        file.on_write(piece.clone(), &wrote(piece, *stable, 1)).unwrap();
    }
    file.poll_commit().expect("its turn");
    file.on_commit(&committed(2)).unwrap();
    assert!(!file.is_done());
    let again: Vec<_> = std::iter::from_fn(|| next(&mut file)).map(|(p, _)| p.start).collect();
    assert_eq!(again, [0, BLOCK, 2 * BLOCK]);
}

#[test]
fn commit_in_flight_covers_earlier_replies() {
    let mut file = Upload::new(fh(), 0..4 * BLOCK);
    let all: Vec<_> = std::iter::from_fn(|| next(&mut file)).map(|(p, _)| p).collect();
    file.on_write(all[0].clone(), &wrote(&all[0], Stable::Unstable, 1)).unwrap();
    file.commit_soon();
    assert!(file.poll_commit().is_some(), "although three are on their way");
    // The server restarts after it, so only the others are lost.
    file.on_write(all[1].clone(), &wrote(&all[1], Stable::Unstable, 1)).unwrap();
    file.on_write(all[2].clone(), &wrote(&all[2], Stable::Unstable, 2)).unwrap();
    file.on_commit(&committed(1)).unwrap();
    assert_eq!(file.take_stable().first(), Some(&(0..BLOCK)));
    assert_eq!(next(&mut file).map(|(p, _)| p), Some(BLOCK..2 * BLOCK));
}

/// Servers that restart at each WRITE, or return random verifiers.
#[test]
fn server_restarting_at_every_write_gets_synchronous_ones() {
    // In flight on a short path, and on a long one.
    for beside in [20, 200] {
        restarts_at_every_write(beside);
    }
}

fn restarts_at_every_write(beside: u64) {
    let mut file = Upload::new(fh(), 0..2 * beside * BLOCK);
    let mut in_flight: VecDeque<_> = std::iter::from_fn(|| next(&mut file)).take(beside as usize).collect();
    let (mut sync, mut answered) = (0, 0u64);
    while let Some((piece, stable)) = in_flight.pop_front() {
        answered += 1;
        file.on_write(piece.clone(), &wrote(&piece, stable, answered as u8)).unwrap();
        if file.poll_commit().is_some() {
            file.on_commit(&committed(answered as u8)).unwrap();
        }
        while in_flight.len() < beside as usize
            && let Some((piece, stable)) = next(&mut file)
        {
            let is_waiting = in_flight.iter().any(|(_, stable)| *stable == Stable::Unstable);
            assert!(!is_waiting || stable == Stable::Unstable, "both kinds are on their way");
            sync += u64::from(stable == Stable::FileSync);
            in_flight.push_back((piece, stable));
        }
    }
    assert!(file.is_done() && (beside * 3 / 2..=beside * 2).contains(&sync), "{sync} synchronous of {answered}");
}

proptest! {
    /// In any order of replies, with any restarts, short writes and tails: when the file is done, every byte was made
    /// stable in the life of the server in which it was written.
    #[test]
    fn done_means_durable(
        blocks in 1u64..12,
        choices in proptest::collection::vec((0u8..8, any::<u8>()), 0..400),
    ) {
        let len = blocks * BLOCK - 7;
        let mut file = Upload::new(fh(), 0..len);
        let mut life = 1u8;
        // Of each byte: 0 nowhere, 1 in the server's memory, 2 on its disk.
        let mut state = vec![0u8; len as usize];
        let mut in_flight = Vec::new();
        let mut stable: Vec<Range<u64>> = Vec::new();
        // The COMMIT in flight takes effect at once; its reply says in which life.
        let mut commit: Option<u8> = None;
        let mut choices = choices.into_iter();
        for _ in 0..10_000 {
            let (kind, x) = choices.next().unwrap_or((7, 0));
            match kind {
                0 if x % 2 == 0 => file.sync_tail(u64::from(x) * 5),
                0 => file.commit_soon(),
                1 if life < 30 => {
                    life += 1;
                    state.iter_mut().filter(|s| **s == 1).for_each(|s| *s = 0);
                }
                2 | 3 => in_flight.extend(next(&mut file)),
                4 if in_flight.len() > 1 => in_flight.swap(0, usize::from(x) % 2),
                _ if !in_flight.is_empty() => {
                    let (piece, stable): (Range<u64>, Stable) = in_flight.remove(usize::from(x) % in_flight.len());
                    let part = piece.start..piece.start + (piece.end - piece.start).div_ceil(1 + u64::from(x % 2));
                    let level = if stable == Stable::Unstable { 1 } else { 2 };
                    state[part.start as usize..part.end as usize].iter_mut().for_each(|s| *s = level.max(*s));
                    file.on_write(piece, &wrote(&part, stable, life)).unwrap();
                }
                _ => match commit.take() {
                    Some(verf) => file.on_commit(&committed(verf)).unwrap(),
                    None => in_flight.extend(next(&mut file)),
                },
            }
            if file.poll_commit().is_some() {
                prop_assert_eq!(commit.replace(life), None, "one at a time");
                state.iter_mut().filter(|s| **s == 1).for_each(|s| *s = 2);
            }
            stable.extend(file.take_stable());
            let all_there = stable.iter().all(|p| state[p.start as usize..p.end as usize].iter().all(|s| *s == 2));
            prop_assert!(all_there, "{stable:?} of {state:?}");
            if file.is_done() {
                break;
            }
        }
        prop_assert!(file.is_done());
        stable.extend(file.take_stable());
        stable.sort_by_key(|p| p.start);
        let reach = stable.iter().fold(0, |end, p| if p.start <= end { end.max(p.end) } else { end });
        prop_assert_eq!(reach, len, "what is said to be stable covers the file: {:?}", stable);
        prop_assert!(state.iter().all(|s| *s == 2), "{state:?}");
    }
}
