//! A method on a trace: it learns all the time, and is judged on the second half.

use remora_cache::PredictorConfig;

use super::lru::{CachedFile, LruCache, Prefetched};
use super::method::{Method, Prefetcher};
use super::neighbours::CacheView;
use super::trace::{Access, AccessKind, Trace};

/// What happened in the judged part of a trace, for one program or all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) reads: u64,
    pub(super) hits: u64,
    pub(super) prefetched_bytes: u64,
    /// Prefetched bytes that were evicted, replaced or left over unread.
    pub(super) wasted_bytes: u64,
    /// Time from each prefetch to its use, in milliseconds.
    pub(super) lead_ms: Vec<u64>,
    /// Accesses from each prefetch to its use.
    pub(super) lead_accesses: Vec<u64>,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Counts) {
        self.reads += other.reads;
        self.hits += other.hits;
        self.prefetched_bytes += other.prefetched_bytes;
        self.wasted_bytes += other.wasted_bytes;
        self.lead_ms.extend(&other.lead_ms);
        self.lead_accesses.extend(&other.lead_accesses);
    }
}

/// A share of the cache that files which were prefetched and not read may fill: one of so many parts, as in the mount.
const UNREAD_PARTS: u64 = 4;

struct Evaluation<'a> {
    trace: &'a Trace,
    prefetcher: Prefetcher<'a>,
    cache: LruCache,
    capacity: u64,
    /// The first access that counts.
    judged_from: usize,
    counts: Vec<Counts>,
}

/// The counts of each program of the trace. `capacity` is that of the cache in bytes.
pub(super) fn evaluate(trace: &Trace, method: Method, model: PredictorConfig, capacity: u64) -> Vec<Counts> {
    let mut evaluation = Evaluation {
        trace,
        prefetcher: Prefetcher::new(method, trace, model),
        cache: LruCache::new(capacity),
        capacity,
        judged_from: trace.accesses.len() / 2,
        counts: vec![Counts::default(); trace.programs.len()],
    };
    for (number, access) in trace.accesses.iter().enumerate() {
        evaluation.access(number, access);
    }
    evaluation.finish()
}

impl Evaluation<'_> {
    fn access(&mut self, number: usize, access: &Access) {
        let cached = self.cache.remove(access.file);
        let is_read = access.kind == AccessKind::Read;
        // A file of another size was changed by somebody else.
        let is_hit = is_read && cached.is_some_and(|cached| cached.size == access.size);
        let prefetched = cached.and_then(|cached| cached.prefetched);
        match (prefetched, cached) {
            (Some(prefetched), _) if is_hit => self.used(number, access, prefetched),
            (Some(_), Some(cached)) => self.wasted(&cached),
            _ => {}
        }
        if let Some(counts) = self.counts.get_mut(access.program).filter(|_| is_read && number >= self.judged_from) {
            counts.reads += 1;
            counts.hits += u64::from(is_hit);
        }
        if access.kind != AccessKind::Remove {
            self.insert(access.file, access.size, None);
        }
        let room = (self.capacity / UNREAD_PARTS).saturating_sub(self.cache.unread());
        let view = CacheView { room, is_first_use: is_hit && prefetched.is_some() };
        let files = self.prefetcher.accessed(access, view);
        self.prefetch(number, access, &files);
    }

    /// Prefetches files in their order as far as there is room. What does not fit waits for the next access.
    fn prefetch(&mut self, number: usize, access: &Access, files: &[usize]) {
        let room = self.capacity / UNREAD_PARTS;
        for file in files {
            let Some(size) = self.prefetcher.size(*file).filter(|size| *size <= room) else { continue };
            if self.cache.contains(*file) {
                continue;
            }
            if self.cache.unread() + size > room {
                break;
            }
            self.prefetch_file(number, access, *file, size);
        }
    }

    fn prefetch_file(&mut self, number: usize, access: &Access, file: usize, size: u64) {
        let prefetched = Prefetched { access: number, at_ms: access.at_ms, program: access.program };
        if let Some(counts) = self.counts.get_mut(access.program).filter(|_| number >= self.judged_from) {
            counts.prefetched_bytes += size;
        }
        self.insert(file, size, Some(prefetched));
    }

    fn insert(&mut self, file: usize, size: u64, prefetched: Option<Prefetched>) {
        for evicted in self.cache.insert(file, size, prefetched) {
            self.wasted(&evicted);
        }
    }

    fn used(&mut self, number: usize, access: &Access, prefetched: Prefetched) {
        let is_judged = prefetched.access >= self.judged_from;
        if let Some(counts) = self.counts.get_mut(prefetched.program).filter(|_| is_judged) {
            counts.lead_ms.push(access.at_ms - prefetched.at_ms);
            counts.lead_accesses.push((number - prefetched.access) as u64);
        }
    }

    /// A file leaves the cache; if it was prefetched and not read, that was in vain.
    fn wasted(&mut self, file: &CachedFile) {
        let prefetched = file.prefetched.filter(|prefetched| prefetched.access >= self.judged_from);
        if let Some(counts) = prefetched.and_then(|prefetched| self.counts.get_mut(prefetched.program)) {
            counts.wasted_bytes += file.size;
        }
    }

    fn finish(mut self) -> Vec<Counts> {
        let cache = std::mem::replace(&mut self.cache, LruCache::new(0));
        cache.into_files().for_each(|file| self.wasted(&file));
        debug_assert_eq!(self.trace.programs.len(), self.counts.len());
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::TracedFile;
    use super::*;

    /// A program that reads files of 10 bytes, one after another, a millisecond each.
    fn trace(files: usize, reads: &[usize]) -> Trace {
        let file = |n| TracedFile { path: vec![n as u32], size: Some(10) };
        let access = |(n, file): (usize, &usize)| Access {
            program: 0,
            at_ms: n as u64,
            kind: AccessKind::Read,
            file: *file,
            size: 10,
        };
        Trace {
            name: "t".into(),
            programs: vec!["p".into()],
            files: (0..files).map(file).collect(),
            accesses: reads.iter().enumerate().map(access).collect(),
        }
    }

    fn total(trace: &Trace, method: Method, capacity: u64) -> Counts {
        evaluate(trace, method, PredictorConfig::default(), capacity).remove(0)
    }

    #[test]
    fn lru_misses_a_cycle_that_exceeds_it() {
        let cycle: Vec<usize> = (0..8).cycle().take(80).collect();
        let counts = total(&trace(8, &cycle), Method::Lru, 60);
        assert_eq!((counts.reads, counts.hits, counts.prefetched_bytes), (40, 0, 0));
        assert_eq!(total(&trace(8, &cycle), Method::Lru, 80).hits, 40);
    }

    #[test]
    fn successor_of_a_cycle_is_prefetched_one_ahead() {
        let cycle: Vec<usize> = (0..8).cycle().take(80).collect();
        for method in [Method::LastSuccessor, Method::Model] {
            let counts = total(&trace(8, &cycle), method, 60);
            // One of these is at the beginning of the judged part, and one at its end.
            assert!(counts.hits >= 39 && counts.wasted_bytes <= 10, "{method:?} {counts:?}");
            assert_eq!(counts.lead_ms, counts.lead_accesses);
            assert!(counts.lead_ms.iter().all(|lead| *lead == 1), "{counts:?}");
        }
    }

    #[test]
    fn prefetched_file_that_is_not_read_is_waste() {
        // In the first half 1 follows 0, in the second half it does not.
        let reads: Vec<usize> = [0, 1].into_iter().cycle().take(20).chain((0..20).map(|n| [0, 2][n % 2])).collect();
        let counts = total(&trace(3, &reads), Method::LastSuccessor, 20);
        assert_eq!((counts.prefetched_bytes, counts.wasted_bytes), (0, 0), "a quarter of the cache is too small");
        let counts = total(&trace(3, &reads), Method::LastSuccessor, 40);
        assert_eq!(counts.hits, 19);
    }
}
