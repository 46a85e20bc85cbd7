//! Flags that describe an emulated channel, and the configuration they stand for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use remora_base::{Rate, Time};
use remora_channel as channel;
use remora_channel::{Config, ErrorModel, Opportunities, Outage, PerSide};

use crate::config::duplex::Duplex;
use crate::config::text_file::TRACE_MAX;
use crate::config::{text_file, units};
use crate::output::exit::{Error, Result};

/// The defaults are the testbed of NFS/W 95 without its errors.
#[derive(Args, Debug)]
pub(crate) struct ChannelArgs {
    /// Rate of the link
    #[arg(long, default_value = "1Mbit")]
    pub(crate) rate: Rate,
    /// Mahimahi trace for frames of the mobile, instead of --rate
    #[arg(long, value_name = "FILE")]
    pub(crate) trace_up: Option<PathBuf>,
    /// Mahimahi trace for frames of the base, instead of --rate
    #[arg(long, value_name = "FILE")]
    pub(crate) trace_down: Option<PathBuf>,
    /// Whether both directions share the medium
    #[arg(long, value_enum, default_value = "half")]
    pub(crate) duplex: Duplex,
    /// Propagation delay, one way
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = units::duration)]
    pub(crate) delay: Duration,
    /// Length of the queue at each side
    #[arg(long, value_name = "FRAMES", default_value = "50")]
    pub(crate) queue: usize,
    /// Maximum frame in bytes
    #[arg(long, value_name = "BYTES", default_value = "1500")]
    pub(crate) mtu: usize,
    /// Probability of independent losses, in good and bad periods
    #[arg(long, value_name = "P", default_value = "0")]
    pub(crate) loss: f64,
    /// Mean length of bad periods; 0: none
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::duration)]
    pub(crate) bad_mean: Duration,
    /// Mean length of good periods
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub(crate) good_mean: Duration,
    /// Distribution of these lengths
    #[arg(long, value_enum, default_value = "uniform")]
    pub(crate) distribution: Distribution,
    /// Outage that begins at START and lasts LENGTH, such as 10s+5s. May be repeated
    #[arg(long, value_name = "START+LENGTH", value_parser = outage)]
    pub(crate) outage: Vec<(Duration, Duration)>,
    /// Delay frames instead of losing them, like an ideal link layer
    #[arg(long)]
    pub(crate) hold: bool,
    /// Seed of the losses and periods
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
}

fn outage(text: &str) -> Result<(Duration, Duration), String> {
    let (start, length) =
        text.split_once('+').ok_or_else(|| format!("'{text}' is not an outage: expected one as in 10s+5s"))?;
    Ok((units::duration(start)?, units::duration(length)?))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Distribution {
    Uniform,
    Fixed,
    Exponential,
}

impl From<Distribution> for channel::Distribution {
    fn from(distribution: Distribution) -> channel::Distribution {
        match distribution {
            Distribution::Uniform => channel::Distribution::Uniform,
            Distribution::Fixed => channel::Distribution::Deterministic,
            Distribution::Exponential => channel::Distribution::Exponential,
        }
    }
}

/// What the flags ask for, checked; traces are read.
pub(crate) fn config(args: &ChannelArgs) -> Result<Config> {
    let outages = args.outage.iter().map(|(start, length)| Outage { start: Time::ZERO + *start, length: *length });
    let config = Config {
        rate: args.rate,
        trace: PerSide { base: trace(args.trace_down.as_deref())?, mobile: trace(args.trace_up.as_deref())? },
        duplex: match args.duplex {
            Duplex::Half => channel::Duplex::Half,
            Duplex::Full => channel::Duplex::Full,
        },
        delay: args.delay,
        queue_frames: args.queue,
        mtu: args.mtu,
        loss: args.loss,
        errors: errors(args),
        outages: outages.collect(),
        hold: args.hold,
        ..Config::default()
    };
    config.validate().map_err(|e| Error::Usage(e.to_string()))?;
    Ok(config)
}

fn errors(args: &ChannelArgs) -> ErrorModel {
    if args.bad_mean.is_zero() {
        return ErrorModel::None;
    }
    ErrorModel::TwoState { distribution: args.distribution.into(), good_mean: args.good_mean, bad_mean: args.bad_mean }
}

fn trace(path: Option<&Path>) -> Result<Option<Arc<Opportunities>>> {
    let Some(path) = path else { return Ok(None) };
    let text = text_file::read(path, TRACE_MAX, "a trace")?;
    let trace = Opportunities::parse(&text).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))?;
    Ok(Some(Arc::new(trace)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outages_are_checked() {
        assert_eq!(outage("10s+500ms"), Ok((Duration::from_secs(10), Duration::from_millis(500))));
        assert!(outage("10s").is_err() && outage("+").is_err());
    }
}
