//! Examples in the help of commands that have no page of their own.

pub(super) const LAB: &str = "\
Examples:
  remora lab wireless --list
  remora lab drc
  remora lab atp --help";

pub(super) const LINK_KEYS: &str = "\
Examples:
  remora link keys
  remora link keys --key /etc/remora/radio.key";

pub(super) const LINK_BASE: &str = "\
Examples:
  remora link base --address 10.78.0.1/24 --mobile 'PUBLIC-KEY=10.78.0.2' \\
      --rate 1Mbit
  remora link base --print-config > /etc/remora/base.toml
  remora link base --config /etc/remora/base.toml --view";

pub(super) const LINK_MOBILE: &str = "\
Examples:
  remora link mobile --address 10.78.0.2/24 --base base.example.net:51900 \\
      --base-key PUBLIC-KEY --route 192.168.1.0/24 --rate 1Mbit
  remora link mobile --config /etc/remora/mobile.toml --json";

pub(super) const LINK_STATUS: &str = "\
Examples:
  remora link status
  remora link status --device remora0 --json | jq .";

pub(super) const LINK_HANDOFF: &str = "\
Examples:
  remora link handoff begin --for 2s
  remora link handoff end";

pub(super) const LINK_HANDOFF_BEGIN: &str = "\
Examples:
  remora link handoff begin --for 2s
  remora link handoff begin --device remora0";

pub(super) const LINK_HANDOFF_END: &str = "\
Examples:
  remora link handoff end
  remora link handoff end --device remora0";

pub(super) const HANDOFF_BEGIN: &str = "\
Examples:
  remora handoff begin --for 2s";

pub(super) const HANDOFF_END: &str = "\
Examples:
  remora handoff end";

pub(super) const LOAD_SEND: &str = "\
Examples:
  remora load send 5001 --rate 6Mbit
  remora load send 127.0.0.1:5001 --rate '60% of 10Mbit' --poisson --for 1m";

pub(super) const LOAD_RECV: &str = "\
Examples:
  remora load recv
  remora load recv --listen 10.77.0.1:5001 --for 1m --json";

pub(super) const MODEL_SERVE: &str = "\
Examples:
  remora model serve
  remora model serve office.toml --listen 8090";

pub(super) const MODEL_CALIBRATE: &str = "\
Examples:
  remora model calibrate office.pcapng
  remora model calibrate any.pcap --bin 10ms --json | jq .stations
  remora model calibrate office.pcapng --topology > office.toml";
