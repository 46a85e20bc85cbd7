use std::time::Duration;

use remora_base::Rate;

use super::ufs::Ufs;

/// A server's machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// Processor time of a call without disk access, such as LOOKUP.
    pub small_call: Duration,
    /// Its file system.
    pub ufs: Ufs,
}

/// The client's machine and its network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Client {
    /// Time in which the process produces a block.
    pub copy: Duration,
    /// One-way network delay, including the interface at either end.
    pub wire: Duration,
}

const fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// Both disks turn 3600 times a minute.
const TURN: Duration = us(16_700);
/// How often another activity holds the disk, and for how long: the same on both servers.
const HOLD_UP_CHANCE: f64 = 0.06;
const HOLD_UP_MEAN: Duration = us(535_000);

impl Machine {
    /// The "small server": a μVAX-II with an RD53 disk. Fitted: the maximum seek, the processor and
    /// the hold-ups.
    pub const SMALL: Machine = Machine {
        small_call: us(5_000),
        ufs: Ufs {
            cpu: us(10_300),
            seek_max: us(67_000),
            turn: TURN,
            rate: Rate::of_bits(5_000_000),
            hold_up_chance: HOLD_UP_CHANCE,
            hold_up_mean: HOLD_UP_MEAN,
            overtaking: true,
        },
    };

    /// The "large server": a VAX 8550 with an RA81 disk. Fitted likewise.
    pub const LARGE: Machine = Machine {
        small_call: us(2_000),
        ufs: Ufs {
            cpu: us(5_200),
            seek_max: us(20_300),
            turn: TURN,
            rate: Rate::of_bits(17_600_000),
            hold_up_chance: HOLD_UP_CHANCE,
            hold_up_mean: HOLD_UP_MEAN,
            overtaking: true,
        },
    };
}

impl Client {
    /// A μVAX-II on the same Ethernet, which needs 7 ms for a write. Both are fitted.
    pub const MICROVAX: Client = Client { copy: us(23_000), wire: us(8_600) };
}
