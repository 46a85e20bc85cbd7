//! File copies: `window` blocks circulate between a sender and a receiver. A block takes the
//! sender's software, its data packets' route, the receiver's disk, its replies' route and the
//! think time; then the next block replaces it. A run has no end of the file: it measures the rate
//! of blocks.

use remora_base::Rng;
use remora_model::{Burst, Copy};

use super::draw::Sizes;
use super::event::Tick;
use super::media::Fifo;
use super::series::Series;

/// An outstanding block.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// Packets that have not arrived.
    left: u32,
    began: Tick,
}

/// Packets per block, where fractions are sent with some blocks only.
#[derive(Clone, Copy, Debug)]
struct Bursts {
    each: f64,
    due: f64,
    sizes: Sizes,
}

impl Bursts {
    fn of(burst: Burst) -> Bursts {
        Bursts { each: burst.packets, due: 0.0, sizes: Sizes::of(burst.size) }
    }

    /// Packets of the next block.
    fn next(&mut self) -> u32 {
        // So that three thirds are one.
        self.due += self.each + 1e-9;
        let whole = self.due.floor();
        self.due = (self.due - whole - 1e-9).max(0.0);
        whole as u32
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyDirection {
    There,
    Back,
}

/// A copy in progress.
#[derive(Clone, Debug)]
pub(crate) struct Copier {
    pub(crate) software: Tick,
    pub(crate) think: Tick,
    disk_time: Tick,
    disk: Fifo,
    rng: Rng,
    there: Bursts,
    back: Bursts,
    blocks: Vec<Block>,
    /// The stations of the groups.
    pub(crate) from: u32,
    pub(crate) to: u32,
    last: Option<Tick>,
    /// Times between blocks.
    pub(crate) intervals: Series,
    /// Response times of blocks.
    pub(crate) responses: Series,
}

impl Copier {
    pub(crate) fn new(copy: &Copy, rng: Rng, from: u32, to: u32) -> Copier {
        Copier {
            software: Tick::of(copy.software.get()),
            think: Tick::of(copy.think.get()),
            disk_time: Tick::of(copy.disk.get()),
            disk: Fifo::default(),
            rng,
            there: Bursts::of(copy.data),
            back: Bursts::of(copy.reply),
            blocks: vec![Block::default(); copy.under_way() as usize],
            from,
            to,
            last: None,
            intervals: Series::new(),
            responses: Series::new(),
        }
    }

    pub(crate) fn window(&self) -> u32 {
        self.blocks.len() as u32
    }

    pub(crate) fn begin(&mut self, now: Tick, block: u32) {
        if let Some(block) = self.blocks.get_mut(block as usize) {
            block.began = now;
        }
    }

    /// The sizes in bits of a block's packets in that direction.
    pub(crate) fn burst(&mut self, way: CopyDirection, block: u32) -> Vec<f64> {
        let bursts = match way {
            CopyDirection::There => &mut self.there,
            CopyDirection::Back => &mut self.back,
        };
        let packets = bursts.next();
        if let Some(block) = self.blocks.get_mut(block as usize) {
            block.left = packets;
        }
        let sizes = bursts.sizes;
        (0..packets).map(|_| sizes.draw(&mut self.rng)).collect()
    }

    /// A packet of a block arrived; returns whether it was the last.
    pub(crate) fn comes(&mut self, block: u32) -> bool {
        let Some(block) = self.blocks.get_mut(block as usize) else { return false };
        block.left = block.left.saturating_sub(1);
        block.left == 0
    }

    /// Completion of the disk for a block that arrives now.
    pub(crate) fn store(&mut self, now: Tick) -> Tick {
        self.disk.serve(now, self.disk_time)
    }

    /// A block is done; counted if the run is `warm`.
    pub(crate) fn done(&mut self, now: Tick, block: u32, warm: bool) {
        let began = self.blocks.get(block as usize).map_or(now, |b| b.began);
        if warm {
            if let Some(last) = self.last {
                self.intervals.add(now.since(last).seconds());
            }
            self.last = Some(now);
            self.responses.add(now.since(began).seconds());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_model::{Bits, Size};

    #[test]
    fn fractional_packets_add_up() {
        for (each, expected) in [(6.0, 6000), (0.5, 500), (1.0 / 3.0, 333), (2.4, 2400)] {
            let mut bursts = Bursts::of(Burst { packets: each, size: Size::constant(Bits::new(8.0).unwrap()) });
            let sum: u32 = (0..1000).map(|_| bursts.next()).sum();
            assert_eq!(sum, expected, "{each}");
        }
    }
}
