//! The destructive replays of DRC 89, section 2.4, under each form of the duplicate request cache,
//! judged by the oracle.

use std::time::Duration;

use bytes::Bytes;
use remora_client::ClientConfig;
use remora_server::cache;
use remora_sim::Trace;
use remora_sim::drc::script::{self, Script};
use remora_sim::net::{Rule, RuleAction};
use remora_sim::swarm::oracle::{CreateMode, Op};
use remora_sim::world::disk::Stall;
use remora_wire::nfs3::Proc;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn path() -> String {
    "file".into()
}

fn write(offset: u64) -> Op {
    Op::Write { path: path(), offset, data: Bytes::from(vec![0xab; 4096]) }
}

fn create() -> Op {
    Op::Create { path: path(), how: CreateMode::Truncating }
}

fn truncate() -> Op {
    Op::Truncate { path: path(), size: 0 }
}

/// A client that retransmits after 0.7 s, and a server with the two daemons of the example.
fn world(operations: Vec<Op>, messages: Vec<Rule>, stalls: Vec<Stall>) -> Script {
    Script {
        client: ClientConfig::stock(),
        cache: cache::Config::Off,
        slots: 2,
        service: ms(10),
        delay: ms(60),
        operations,
        messages,
        stalls,
    }
}

/// The violations under each cache: off, the reference port's, Juszczak's, full.
fn judge(script: &Script) -> [Vec<String>; 4] {
    let caches = [cache::Config::Off, cache::Config::reference(), cache::Config::juszczak(), cache::Config::full()];
    caches.map(|cache| script::run(&Script { cache, ..script.clone() }, Trace::quiet()))
}

/// The first two lose the write, as the violations show; the last two keep it.
fn assert_lost_without_a_real_cache(script: &Script, how: &str) {
    let [off, reference, juszczak, full] = judge(script);
    for (name, found) in [("off", off), ("reference", reference)] {
        assert!(matches!(&found[..], [only] if only.contains(how)), "{name}: {found:?} instead of '{how}'");
    }
    assert_eq!((juszczak, full), (vec![], vec![]));
}

/// c(0) is slow, so that c(1) is sent at 0.7 s just before its reply arrives; c(1) then blocks on a
/// resource (t5) while the other daemon executes w(0), and truncates the data of w(0) (t8).
#[test]
fn example_1_replayed_create_truncates_the_file() {
    let stalls = vec![
        Stall { proc: Proc::Create, nth: 0, extra: ms(600) },
        Stall { proc: Proc::Create, nth: 1, extra: ms(500) },
    ];
    assert_lost_without_a_real_cache(&world(vec![create(), write(0)], vec![], stalls), "0 bytes instead of 4096");
}

/// "If both nfsd1 and nfsd2 are scheduled, one with the write and the other with the duplicate
/// create, then scheduler vagaries can make their order of execution unpredictable": nothing
/// blocks; c(1) merely arrives late and starts together with w(0).
#[test]
fn example_1_late_create_without_block_truncates_the_file() {
    let messages = vec![Rule { proc: Proc::Create, nth: 1, action: RuleAction::Delay(ms(95)) }];
    let stalls = vec![Stall { proc: Proc::Create, nth: 0, extra: ms(600) }];
    assert_lost_without_a_real_cache(&world(vec![create(), write(0)], messages, stalls), "0 bytes instead of 4096");
}

/// "Setattr can be used to truncate a file; it can be used instead of create."
#[test]
fn first_variant_replayed_setattr_truncates_the_file() {
    let stalls = vec![
        Stall { proc: Proc::SetAttr, nth: 0, extra: ms(600) },
        Stall { proc: Proc::SetAttr, nth: 1, extra: ms(500) },
    ];
    let operations = vec![create(), write(0), truncate(), write(0)];
    assert_lost_without_a_real_cache(&world(operations, vec![], stalls), "0 bytes instead of 4096");
}

/// "If a duplicate write request is applied in a server nfsd race after a file truncation, then
/// the file size is non-zero and the file contents are binary zeroes + the block of write data."
#[test]
fn second_variant_late_write_leaves_zeros_and_block() {
    let stalls =
        vec![Stall { proc: Proc::Write, nth: 0, extra: ms(600) }, Stall { proc: Proc::Write, nth: 1, extra: ms(500) }];
    let operations = vec![create(), write(8192), truncate()];
    let found = "12288 bytes instead of 0";
    assert_lost_without_a_real_cache(&world(operations, vec![], stalls), found);
}

/// Section 4.2: "the client may get a failure response from the original request and the server
/// replays a duplicate which for some reason now succeeds." Only a cache that keeps failures
/// prevents it.
#[test]
fn failure_replayed_succeeds_unknown_to_the_client() {
    let stalls =
        vec![Stall { proc: Proc::MkDir, nth: 1, extra: ms(600) }, Stall { proc: Proc::MkDir, nth: 2, extra: ms(500) }];
    let (dir, other) = ("dir".to_string(), "other".to_string());
    let operations = vec![Op::MkDir(dir.clone()), Op::MkDir(dir.clone()), Op::Rename { from: dir, to: other }];
    let [off, reference, juszczak, full] = judge(&world(operations, vec![], stalls));
    for found in [off, reference, juszczak] {
        assert!(matches!(&found[..], [only] if only.contains("exists unexpectedly")), "{found:?}");
    }
    assert_eq!(full, Vec::<String>::new());
}

/// Without retransmissions no cache is needed.
#[test]
fn every_cache_holds_without_duplicates() {
    let operations = vec![create(), write(0), truncate(), write(8192), Op::Download(path())];
    for found in judge(&world(operations, vec![], vec![])) {
        assert_eq!(found, Vec::<String>::new());
    }
}
