//! Common flags of the programs that copy files across the emulated channel.

use std::ops::Range;
use std::time::Duration;

use clap::{Args, ValueEnum};
use remora_base::Rate;
use remora_channel::ErrorModel;
use remora_client::{ClientConfig, Transport};
use remora_sim::programs::duration;

/// Seeds, client, channel.
#[derive(Args)]
pub(crate) struct Flags {
    /// Number of seeds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Policy of the client.
    #[arg(long, value_enum, default_value_t = Policy::Adaptive)]
    policy: Policy,
    /// Rate of the channel.
    #[arg(long, default_value = "1Mbit")]
    rate: Rate,
    /// Mean length of bad periods; 0ms for none.
    #[arg(long, default_value = "80ms", value_parser = duration)]
    bad_mean: Duration,
    /// Probability of independent frame loss.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Runs the link protocol at both ends of the radio hop.
    #[arg(long)]
    pub(crate) link: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Policy {
    /// A client of the 1990s: 8 KiB, 0.7 s doubled, five outstanding.
    Stock,
    /// The papers' settings: 4 KiB, hybrid linear back-off.
    Paper,
    /// Remora's adaptive client.
    Adaptive,
}

impl Flags {
    pub(crate) fn seeds(&self) -> Range<u64> {
        self.from..self.from.saturating_add(self.seeds)
    }

    pub(crate) fn client(&self) -> ClientConfig {
        match self.policy {
            Policy::Stock => ClientConfig::stock(),
            Policy::Paper => ClientConfig::paper(),
            Policy::Adaptive => ClientConfig::new(Transport::Udp),
        }
    }

    pub(crate) fn channel(&self) -> remora_channel::Config {
        let errors = ErrorModel::bursts(self.bad_mean);
        remora_channel::Config { rate: self.rate, loss: self.loss, errors, ..Default::default() }
    }
}
