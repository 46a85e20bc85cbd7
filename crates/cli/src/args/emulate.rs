//! The flags of `remora lab emulate`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ipnet::Ipv4Net;

use super::ChannelArgs;
use crate::units;

pub(crate) const HELP: &str = "\
The base and each mobile are network namespaces with a device remora0 on the
emulated link: the base has the first address of the network (10.77.0.1), mobile
1 the second, and so on. COMMAND runs in mobile 1; its exit code is ours, or 128
and the number of the signal that ended it. When COMMAND ends, everything else
inside is ended. Programs find REMORA_BASE_ADDR, REMORA_MOBILE_ADDR and
MAHIMAHI_BASE in their environment.

The channel begins before the first program does. At the end a report goes to
standard error: what became of the frames, and whether the run is VALID: no
frame was handed over later than --lateness-max. With --json it goes to standard
output, one object on the last line.

Examples:
  remora lab emulate   # a shell on the mobile
  remora lab emulate --bad-mean 80ms --base 'iperf3 -s' -- \\
      sh -c 'sleep 1; iperf3 -c 10.77.0.1'
  remora lab emulate \\
      --base 'remora serve /srv --listen 0.0.0.0:2049 --squash none' \\
      -- remora cp -r nfs://10.77.0.1/ .
  remora lab emulate --trace-down verizon.down --trace-up verizon.up \\
      --pcap /tmp/run -- ./client
  remora lab emulate --self-test";

/// What has no say in the self-test.
const NOT_TESTED: [&str; 19] = [
    "command",
    "base",
    "mobile",
    "mobiles",
    "congestion",
    "pcap",
    "rate",
    "trace_up",
    "trace_down",
    "duplex",
    "delay",
    "queue",
    "mtu",
    "loss",
    "bad_mean",
    "good_mean",
    "distribution",
    "outage",
    "hold",
];

#[derive(Args, Debug)]
pub(crate) struct Emulate {
    #[command(flatten)]
    pub(crate) channel: ChannelArgs,
    /// Mobiles that share the channel
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) mobiles: usize,
    /// Run this on the base first, by the shell, beside COMMAND
    #[arg(long, value_name = "CMD")]
    pub(crate) base: Option<String>,
    /// Run this on mobile N, by the shell, beside COMMAND; may be given several times
    #[arg(long, value_name = "N=CMD", value_parser = on_mobile)]
    pub(crate) mobile: Vec<(usize, String)>,
    /// Addresses of base and mobiles
    #[arg(long, value_name = "CIDR", default_value = "10.77.0.0/24")]
    pub(crate) network: Ipv4Net,
    /// TCP's congestion control on both sides, one that the kernel has
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) congestion: String,
    /// How late a frame may be handed over in a valid run
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = units::duration)]
    pub(crate) lateness_max: Duration,
    /// Write base.pcapng, mobile-1.pcapng, ... there; each frame sent says what became of it
    #[arg(long, value_name = "DIR")]
    pub(crate) pcap: Option<PathBuf>,
    /// Print the report as an object
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure whether the emulator does what it says, in about 20 seconds, on channels of its own;
    /// nothing else is run
    #[arg(long, conflicts_with_all = NOT_TESTED)]
    pub(crate) self_test: bool,
    /// What to run on mobile 1 [default: $SHELL]
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

fn on_mobile(text: &str) -> Result<(usize, String), String> {
    let parts = text.split_once('=').and_then(|(n, cmd)| Some((n.parse().ok()?, cmd.to_owned())));
    parts.filter(|(n, _)| *n > 0).ok_or_else(|| format!("'{text}' is not N=CMD: expected as in '2=iperf3 -s'"))
}

/// How the emulator starts a program; see `remora_host::emulate::inside`.
#[derive(Args, Debug)]
pub(crate) struct Inside {
    pub(crate) namespace: PathBuf,
    pub(crate) program: OsString,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        emulate: Emulate,
    }

    #[test]
    fn a_flag_that_there_is_not_is_no_command() {
        let command = |line: &[&str]| {
            let parsed = Line::try_parse_from([&["emulate"], line].concat());
            parsed.map(|line| line.emulate.command).ok()
        };
        assert_eq!(command(&["--seed", "2", "--full-duplex", "--", "true"]), None);
        let ping = Some(["ping", "-c", "1"].map(OsString::from).to_vec());
        assert_eq!(command(&["--seed", "2", "--", "ping", "-c", "1"]), ping);
        assert_eq!(command(&["--seed", "2", "ping", "-c", "1"]), ping, "what follows a program is its own");
    }

    #[test]
    fn mobiles_are_numbered_from_one() {
        assert_eq!(on_mobile("2=ping -c 1 a=b"), Ok((2, "ping -c 1 a=b".to_owned())));
        assert!(on_mobile("0=x").is_err() && on_mobile("x").is_err() && on_mobile("=x").is_err());
    }
}
