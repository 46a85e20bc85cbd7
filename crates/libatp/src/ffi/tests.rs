//! The layout as C has it, and what wrong arguments come to.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command as Program;
use std::ptr::{null, null_mut};
use std::sync::mpsc::{Sender, channel};

use remora_atp::session::{Config as SessionConfig, Guests};
use remora_host::atp::{AtpEndpoint, EndpointSettings as HostSettings};

use super::types::{Command, Data, Key, Options, Settings, Upcall};
use super::*;

/// What `interface.c` prints when compiled against the header. No library is linked here, which
/// its printing does not need; `tests/c.rs` links it with one.
fn as_c_has_it() -> BTreeMap<String, usize> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("interface");
    let built = Program::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wl,--unresolved-symbols=ignore-all", "-o"])
        .arg(&program)
        .arg("-I")
        .arg(here.join("include"))
        .arg(here.join("tests/interface.c"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let out = String::from_utf8(Program::new(program).output().unwrap().stdout).unwrap();
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    out.lines().map(pair).collect()
}

macro_rules! layout {
    ($($c:literal = $rust:ty { $($field:ident),* })*) => {
        [$(
            ($c.to_owned(), size_of::<$rust>()),
            $((format!("{}.{}", $c, stringify!($field)), offset_of!($rust, $field)),)*
        )*]
    };
}

#[test]
fn types_and_numbers_are_those_of_the_header() {
    let layout = layout! {
        "atp_key_t" = Key {}
        "atp_settings_t" = Settings {
            struct_size, listen, key_file, guests, guest_count, received_bytes_max, received_max, admit
        }
        "atp_data_t" = Data { bytes, size, capacity, priority }
        "atp_options_t" = Options { priority, deadline_ms, queue, on_shortage }
        "atp_command_t" = Command { op, state, size, written, acknowledged }
        "atp_upcall_t" = Upcall { kind, outcome, request, size, written, needed, available, side, probability }
    };
    let numbers = [
        ("ATP_FINAL", 1),
        ("ATP_INSUFFICIENT", 2),
        ("ATP_RESUMED", 3),
        ("ATP_BANDWIDTH", 4),
        ("ATP_PRIORITISE", 4),
        ("ATP_DEADLINE", 5),
        ("ATP_FINISHING", 6),
        ("ATP_ANYONE", 2),
        ("ATP_LOW", 4),
        ("ATP_MEDIUM", 8),
        ("ATP_HIGH", 12),
        ("ATP_PRIORITY_MAX", 15),
    ];
    let ours = layout.into_iter().chain(numbers.map(|(name, n)| (name.to_owned(), n))).collect::<BTreeMap<_, _>>();
    assert_eq!(as_c_has_it(), ours);
}

fn data(bytes: *mut c_void, size: usize) -> Data {
    Data { bytes, size, capacity: 0, priority: 0 }
}

fn options() -> Options {
    Options { priority: 8, deadline_ms: 0, queue: 0, on_shortage: 0 }
}

/// What wrong arguments come to, whether or not the library runs.
fn check_arguments() {
    let invalid = Code::INVALID.0;
    let empty = data(null_mut(), 0);
    // SAFETY: null, or pointers to what lives here.
    unsafe {
        assert_eq!(atp_keys_generate(null(), null_mut()), invalid);
        assert_eq!(atp_keys_generate(c"".as_ptr(), null_mut()), invalid);
        assert_eq!(atp_keys_load(null(), null_mut()), invalid);
        assert_eq!(atp_keys_load(c"no/such/file".as_ptr(), null_mut()), Code::KEY.0);
        assert_eq!(atp_public_key(null_mut()), invalid);
        assert_eq!(atp_peer_key(1, null_mut()), invalid);
        assert_eq!(atp_endpoint(null(), 1, null()), invalid);
        assert_eq!(atp_endpoint(c"::1".as_ptr(), 1, &Key { text: [b'x' as c_char; 45] }), Code::KEY.0);
        assert_eq!(atp_send_sync(1, null(), null(), null_mut()), invalid);
        assert_eq!(atp_send_sync(1, &data(null_mut(), 1), null(), null_mut()), invalid);
        assert_eq!(
            atp_send_async(1, &data(null_mut(), usize::MAX), null(), None, null_mut()),
            i64::from(Code::TOO_BIG.0)
        );
        for bad in [Options { priority: 16, ..options() }, Options { priority: -1, ..options() }] {
            assert_eq!(atp_send_sync(1, &empty, &bad, null_mut()), invalid);
        }
        assert_eq!(atp_send_sync(1, &empty, &Options { on_shortage: 2, ..options() }, null_mut()), invalid);
        assert_eq!(atp_recv(1, null_mut(), 0), invalid);
        assert_eq!(atp_recv(1, &mut Data { capacity: 9, ..data(null_mut(), 0) }, 0), invalid);
        assert_eq!(atp_callback(1, None, null_mut(), 1, 2), invalid);
        assert_eq!(atp_reqctl(1, null_mut(), null()), invalid);
        for op in [-1, 4, 5, 6] {
            let mut command = Command { op, state: 0, size: 0, written: 0, acknowledged: 0 };
            assert_eq!(atp_reqctl(1, &mut command, null()), invalid, "{op}");
        }
    }
}

/// What numbers come to that are none, or when the library does not run.
fn check_numbers(expected: Code) {
    unsafe extern "C" fn never(_: *const Upcall, _: *mut c_void) {}
    let expected = expected.0;
    let empty = data(null_mut(), 0);
    let mut key = Key { text: [0; 45] };
    let mut command = Command { op: 0, state: 0, size: 0, written: 0, acknowledged: 0 };
    for eid in [i32::MIN, -1, 0, 1, i32::MAX] {
        // SAFETY: pointers to what lives here.
        unsafe {
            assert_eq!(atp_close(eid), expected);
            assert_eq!(atp_peer_key(eid, &mut key), expected);
            assert_eq!(atp_send_sync(eid, &empty, null(), null_mut()), expected);
            assert_eq!(atp_send_async(eid, &empty, null(), None, null_mut()), i64::from(expected));
            assert_eq!(atp_recv(eid, &mut data(null_mut(), 0), -1), expected);
            assert_eq!(atp_callback(eid, Some(never), null_mut(), 1, 0), expected);
            assert_eq!(atp_reqctl(eid.into(), &mut command, null()), expected);
        }
    }
}

#[test]
fn wrong_arguments_and_wrong_numbers_are_codes_at_any_time() {
    let _alone = crate::tests::alone();
    check_arguments();
    check_numbers(Code::NOT_INIT);
    assert_eq!(atp_shutdown(), Code::NOT_INIT.0);
    assert_eq!(atp_local_port(), Code::NOT_INIT.0);
    assert_eq!(atp_accept(0), Code::NOT_INIT.0);
    let none = Settings {
        struct_size: size_of::<Settings>(),
        listen: c"127.0.0.1:0".as_ptr(),
        key_file: null(),
        guests: null(),
        guest_count: 0,
        received_bytes_max: 1,
        received_max: 1,
        admit: 0,
    };
    // SAFETY: pointers to what lives here.
    unsafe {
        assert_eq!(atp_init(&Settings { struct_size: 8, ..none }), Code::INVALID.0);
        // Of a program that was compiled with no more than this field: nothing behind it is touched.
        let short: usize = size_of::<usize>();
        assert_eq!(atp_init((&raw const short).cast()), Code::INVALID.0);
        assert_eq!(atp_init(&Settings { admit: 3, ..none }), Code::INVALID.0);
        assert_eq!(atp_init(&Settings { admit: 1, guest_count: 1, ..none }), Code::INVALID.0);
        let guest = [c"not a key".as_ptr()];
        assert_eq!(atp_init(&Settings { admit: 1, guests: guest.as_ptr(), guest_count: 1, ..none }), Code::KEY.0);
        assert_eq!(atp_init(&Settings { listen: c"nowhere".as_ptr(), ..none }), Code::INVALID.0);
        assert_eq!(atp_init(&Settings { listen: c"192.0.2.1:1".as_ptr(), ..none }), Code::SYSTEM.0);
        assert_eq!(atp_init(&none), 0);
        assert_eq!(atp_init(&none), Code::ALREADY.0);
    }
    assert!(atp_local_port() > 0);
    check_arguments();
    check_numbers(Code::BAD_ID);
    assert_eq!(atp_accept(0), Code::TIMED_OUT.0);
    assert_eq!(atp_accept(20), Code::TIMED_OUT.0);
    let (eid, request) = check_bounds();
    // Waits are ended by the library's end.
    let waits = std::thread::spawn(|| atp_accept(-1));
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(atp_shutdown(), 0);
    assert!([Code::CLOSED.0, Code::NOT_INIT.0].contains(&waits.join().unwrap()));
    assert_eq!(atp_shutdown(), Code::NOT_INIT.0);
    // Numbers from before are nobody's after.
    // SAFETY: pointers to what lives here.
    unsafe {
        assert_eq!(atp_init(&none), 0);
        let mut command = Command { op: 1, state: 0, size: 0, written: 0, acknowledged: 0 };
        assert_eq!(atp_reqctl(request, &mut command, null()), Code::BAD_ID.0);
    }
    assert_eq!(atp_close(eid), Code::BAD_ID.0);
    assert_eq!(atp_shutdown(), 0);
}

/// The bandwidth of loopback is below any bound that large: the one upcall comes, on the
/// library's thread.
fn check_bounds() -> (i32, i64) {
    unsafe extern "C" fn tell(upcall: *const Upcall, context: *mut c_void) {
        // SAFETY: the library's promise, and the sender lives as long as the test's process.
        let (upcall, sender) = unsafe { (&*upcall, &*context.cast::<Sender<(i32, i32)>>()) };
        sender.send((upcall.kind, upcall.side)).unwrap();
    }
    let session = SessionConfig { guests: Guests::Anyone, ..SessionConfig::default() };
    let settings = HostSettings { session, ..HostSettings::receiver("127.0.0.1:0".parse().unwrap()) };
    let peer = AtpEndpoint::bind(settings, keys::generate().unwrap()).unwrap();
    let (sender, hear) = channel::<(i32, i32)>();
    let context = std::ptr::from_ref(Box::leak(Box::new(sender))).cast_mut().cast();
    let mut key = Key { text: [0; 45] };
    let mut content = vec![7u8; 100_000];
    let object = data(content.as_mut_ptr().cast(), content.len());
    // SAFETY: pointers to what lives here.
    unsafe {
        read::give_key(&mut key, peer.public_key());
        // The library listens on an address of IPv4's.
        assert_eq!(atp_endpoint(c"::1".as_ptr(), peer.local_addr().port(), &key), Code::NAME.0);
        let eid = atp_endpoint(c"localhost".as_ptr(), peer.local_addr().port(), &key);
        assert!(eid > 0);
        let mut other = Key { text: [0; 45] };
        read::give_key(&mut other, keys::generate().unwrap().public());
        let refused = atp_endpoint(c"127.0.0.1".as_ptr(), peer.local_addr().port(), &other);
        assert_eq!(atp_send_sync(refused, &object, null(), null_mut()), Code::REFUSED.0);
        assert_eq!(atp_callback(eid, Some(tell), context, 0, 0), Code::INVALID.0);
        assert_eq!(atp_callback(eid, Some(tell), context, u64::MAX, 0), 0);
        // It does not take the place of the one that stands.
        assert_eq!(atp_callback(refused, Some(tell), context, 1, 0), Code::REFUSED.0);
        assert_eq!(atp_send_sync(eid, &object, null(), null_mut()), 0);
        assert_eq!(hear.recv_timeout(std::time::Duration::from_secs(20)).unwrap(), (4, -1));
        check_replaced_bounds(eid);
        let request = atp_send_async(eid, &object, null(), None, null_mut());
        assert!(request > 0);
        (eid, request)
    }
}

/// Bounds that were crossed while a callback ran, and then replaced by it: the old callback is not
/// called any more, for its context may be gone.
fn check_replaced_bounds(eid: i32) {
    struct Heard {
        eid: i32,
        old: Sender<()>,
        new: Sender<()>,
    }
    unsafe extern "C" fn tell(_: *const Upcall, context: *mut c_void) {
        // SAFETY: a sender that lives as long as the test's process.
        unsafe { &*context.cast::<Sender<()>>() }.send(()).unwrap();
    }
    unsafe extern "C" fn replace(_: *const Upcall, context: *mut c_void) {
        // SAFETY: what is pointed to lives as long as the test's process.
        unsafe {
            let heard = &*context.cast::<Heard>();
            let context = |sender: &Sender<()>| std::ptr::from_ref(sender).cast_mut().cast();
            assert_eq!(atp_callback(heard.eid, Some(tell), context(&heard.old), u64::MAX, 0), 0);
            // Upcalls are half a second apart: then they have been crossed.
            std::thread::sleep(std::time::Duration::from_millis(1200));
            assert_eq!(atp_callback(heard.eid, Some(tell), context(&heard.new), u64::MAX, 0), 0);
        }
    }
    let ((old, hear_old), (new, hear_new)) = (channel(), channel());
    let heard = std::ptr::from_ref(Box::leak(Box::new(Heard { eid, old, new }))).cast_mut().cast();
    // SAFETY: pointers to what lives here, or is leaked.
    let request = unsafe { atp_send_async(eid, &data(null_mut(), 0), null(), Some(replace), heard) };
    assert!(request > 0);
    hear_new.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    assert!(hear_old.try_recv().is_err(), "called although replaced");
}

/// Whether the peer is there or never answered: what has not ended when the library does, ends by that.
#[test]
fn requests_that_have_not_ended_end_with_the_library() {
    unsafe extern "C" fn tell(upcall: *const Upcall, context: *mut c_void) {
        // SAFETY: the library's promise, and the sender lives as long as the test's process.
        let (upcall, sender) = unsafe { (&*upcall, &*context.cast::<Sender<(i32, i32)>>()) };
        sender.send((upcall.kind, upcall.outcome)).unwrap();
    }
    let _alone = crate::tests::alone();
    let session = SessionConfig { guests: Guests::Anyone, ..SessionConfig::default() };
    let settings = HostSettings { session, ..HostSettings::receiver("127.0.0.1:0".parse().unwrap()) };
    let peer = AtpEndpoint::bind(settings, keys::generate().unwrap()).unwrap();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut content = vec![7u8; 10_000_000];
    for (port, has_peer) in [(silent.local_addr().unwrap().port(), false), (peer.local_addr().port(), true)] {
        let (sender, hear) = channel::<(i32, i32)>();
        let context = std::ptr::from_ref(Box::leak(Box::new(sender))).cast_mut().cast();
        let mut key = Key { text: [0; 45] };
        let object = data(content.as_mut_ptr().cast(), content.len());
        // SAFETY: pointers to what lives here, or is leaked.
        unsafe {
            assert_eq!(atp_init(null()), 0);
            read::give_key(&mut key, peer.public_key());
            let eid = atp_endpoint(c"127.0.0.1".as_ptr(), port, &key);
            if has_peer {
                assert_eq!(atp_send_sync(eid, &data(null_mut(), 0), null(), null_mut()), 0);
            }
            let request = atp_send_async(eid, &object, null(), Some(tell), context);
            let mut suspend = Command { op: 2, state: 0, size: 0, written: 0, acknowledged: 0 };
            assert_eq!(atp_reqctl(request, &mut suspend, null()), 0);
        }
        assert_eq!(atp_shutdown(), 0);
        assert_eq!(hear.try_recv(), Ok((1, Code::CLOSED.0)), "connected: {has_peer}");
    }
}

#[test]
fn a_panic_stays_here() {
    assert_eq!(guard(|| -> Result<i32, Code> { panic!("on purpose") }), Code::INTERNAL.0);
}
