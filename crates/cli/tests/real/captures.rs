//! The capture files of `remora lab emulate --pcap`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::{Block, PcapNgReader};

use super::common::trials::{find, program};
use super::common::{Place, noise};
use super::report;

/// The packets of a capture: time, comment, length.
fn read_capture(path: &Path) -> Vec<(Duration, String, usize)> {
    let mut reader = PcapNgReader::new(File::open(path).unwrap()).unwrap();
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(EnhancedPacketBlock { timestamp, data, options, .. }) = block.unwrap() {
            let comment = options.iter().find_map(|o| match o {
                EnhancedPacketOption::Comment(c) => Some(c.to_string()),
                _ => None,
            });
            packets.push((timestamp, comment.unwrap(), data.len()));
        }
    }
    packets
}

pub(super) fn captures_say_what_became_of_each_frame() {
    let p = Place::new();
    // 1000 bytes of payload, ten at once by the shell itself and at twice the rate: the queue overflows
    // on a busy machine, too.
    let flood = "i=0; while [ $i -lt 400 ]; do printf %01000d 0 > /dev/udp/$REMORA_BASE_ADDR/9; i=$((i+1)); \
                 [ $((i%10)) != 0 ] || sleep 0.04; done; sleep 0.3";
    let bash = find("bash").unwrap();
    let flags = ["--bad-mean", "160ms", "--loss", "0.1", "--queue", "5", "--seed", "3", "--pcap", "captures"];
    let r = report(&p, &[&flags[..], &["--", bash.to_str().unwrap(), "-c", flood]].concat());
    let sent = read_capture(&p.here("captures/mobile-1.pcapng"));
    let received = read_capture(&p.here("captures/base.pcapng"));
    let count = |all: &[(Duration, String, usize)], what: &str| all.iter().filter(|(_, c, _)| c == what).count() as u64;
    let up = &r["lanes"][1];
    for (comment, counter) in [
        ("sent: delivered", "delivered"),
        ("sent: lost, bad period", "bad"),
        ("sent: lost, random", "random"),
        ("dropped: queue full", "queue_full"),
    ] {
        assert!(count(&sent, comment) > 0, "{comment}: {r}");
        assert_eq!(count(&sent, comment), up[counter].as_u64().unwrap(), "{comment}: {r}");
    }
    assert_eq!(count(&received, "received"), up["delivered"].as_u64().unwrap(), "{r}");
    for capture in [&sent, &received] {
        assert!(capture.is_sorted_by_key(|(at, _, _)| *at), "in the order of time");
    }
    assert!(sent.iter().filter(|(_, _, n)| *n == 1028).count() >= 400);
    // Each arrives its airtime and the delay after it was sent.
    let took = Duration::from_nanos(1028 * 8000) + Duration::from_millis(2);
    let arrivals: BTreeSet<Duration> = received.iter().map(|(at, _, _)| *at).collect();
    for (at, comment, bytes) in &sent {
        if comment == "sent: delivered" && *bytes == 1028 {
            assert!(arrivals.contains(&(*at + took)), "{at:?}");
        }
    }
    if find("tcpdump").is_some() {
        let out = program("tcpdump").args(["-n", "-r"]).arg(p.here("captures/mobile-1.pcapng")).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(text.contains("IP 10.77.0.2") && text.contains("10.77.0.1.9: UDP, length 1000"), "{text}");
    }
}

/// Opening or writing a FIFO can block, and a symbolic link leads elsewhere.
pub(super) fn a_pipe_or_a_link_is_no_capture() {
    let p = Place::new();
    fs::create_dir(p.here("d")).unwrap();
    for [name, other] in [["base.pcapng", "mobile-1.pcapng"], ["mobile-1.pcapng", "base.pcapng"]] {
        let (pipe, other) = (p.here("d").join(name), p.here("d").join(other));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        fs::write(&other, "an earlier run").unwrap();
        p.run(&["lab", "emulate", "--pcap", "d", "--", "true"]).expect(1, &[name, "not a regular file"]);
        assert_eq!(fs::read(&other).unwrap(), b"an earlier run", "{name}");
        fs::remove_file(pipe).unwrap();
        fs::remove_file(other).unwrap();
    }
    let precious = p.here("precious");
    fs::write(&precious, "precious").unwrap();
    std::os::unix::fs::symlink(&precious, p.here("d/base.pcapng")).unwrap();
    p.run(&["lab", "emulate", "--pcap", "d", "--", "true"]).expect(1, &["base.pcapng", "not a regular file"]);
    fs::remove_file(p.here("d/base.pcapng")).unwrap();
    fs::hard_link(&precious, p.here("d/mobile-1.pcapng")).unwrap();
    fs::write(p.here("d/base.pcapng"), noise(100_000, 1)).unwrap();
    p.ok(&["lab", "emulate", "--pcap", "d", "--", "true"]);
    assert!(fs::metadata(p.here("d/base.pcapng")).unwrap().len() < 100_000, "what was there is replaced");
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
}
