//! From the flags that describe a channel to its configuration.

use std::path::Path;
use std::sync::Arc;

use remora_base::Time;
use remora_channel::{self as channel, Config, ErrorModel, Opportunities, Outage, PerSide};

use crate::args::{self, ChannelArgs};
use crate::exit::{Error, Result};
use crate::text::{self, TRACE_MAX};

/// What the flags ask for, checked; traces are read.
pub(super) fn config(args: &ChannelArgs) -> Result<Config> {
    let outages = args.outage.iter().map(|(start, length)| Outage { start: Time::ZERO + *start, length: *length });
    let config = Config {
        rate: args.rate,
        trace: PerSide { base: trace(args.trace_down.as_deref())?, mobile: trace(args.trace_up.as_deref())? },
        duplex: match args.duplex {
            args::Duplex::Half => channel::Duplex::Half,
            args::Duplex::Full => channel::Duplex::Full,
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
    ErrorModel::TwoState {
        distribution: match args.distribution {
            args::Distribution::Uniform => channel::Distribution::Uniform,
            args::Distribution::Deterministic => channel::Distribution::Deterministic,
            args::Distribution::Exponential => channel::Distribution::Exponential,
        },
        good_mean: args.good_mean,
        bad_mean: args.bad_mean,
    }
}

fn trace(path: Option<&Path>) -> Result<Option<Arc<Opportunities>>> {
    let Some(path) = path else { return Ok(None) };
    let text = text::read(path, TRACE_MAX, "a trace")?;
    let trace = Opportunities::parse(&text).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))?;
    Ok(Some(Arc::new(trace)))
}
