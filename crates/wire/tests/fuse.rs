//! Requests as the kernel writes them decode to their arguments, and replies have the layout that it
//! reads. Any other input is an error, never a panic.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use remora_wire::fuse::*;

/// A field of a C structure in the machine's byte order.
#[derive(Clone, Copy)]
enum Field<'a> {
    U16(u16),
    U32(u32),
    U64(u64),
    Text(&'a [u8]),
}
use Field::{Text, U16, U32, U64};

/// The fields, one after the other.
fn structure(fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    for field in fields {
        match field {
            U16(value) => out.extend(value.to_ne_bytes()),
            U32(value) => out.extend(value.to_ne_bytes()),
            U64(value) => out.extend(value.to_ne_bytes()),
            Text(bytes) => out.extend_from_slice(bytes),
        }
    }
    out
}

/// A request to node 5 by thread 300 of user 1000, group 100, with number 42.
fn request(opcode: u32, fields: &[Field]) -> Bytes {
    let body = structure(fields);
    let len = (Header::LEN + body.len()) as u32;
    let (number, node) = (U64(42), U64(5));
    let head = [U32(len), U32(opcode), number, node, U32(1000), U32(100), U32(300), U16(0), U16(0)];
    [structure(&head), body].concat().into()
}

fn name(text: &'static str) -> Name {
    Bytes::from_static(text.as_bytes())
}

/// Operations on names, as the kernel writes them.
fn name_operations() -> Vec<(Bytes, Operation)> {
    let (mode, umask, flags) = (0o100_644, 0o22, 0o1101);
    let rename = |flags| Operation::Rename { name: name("a"), new_dir: 9, new_name: name("bc"), flags };
    vec![
        (request(opcode::LOOKUP, &[Text(b"a\0")]), Operation::Lookup { name: name("a") }),
        (
            request(opcode::SYMLINK, &[Text(b"a\0../to\0")]),
            Operation::SymLink { name: name("a"), target: name("../to") },
        ),
        (
            request(opcode::MKNOD, &[U32(mode), U32(0x103), U32(umask), U32(0), Text(b"a\0")]),
            Operation::MkNod { name: name("a"), mode, rdev: 0x103, umask },
        ),
        (
            request(opcode::MKDIR, &[U32(mode), U32(umask), Text(b"a\0")]),
            Operation::MkDir { name: name("a"), mode, umask },
        ),
        (request(opcode::UNLINK, &[Text(b"a\0")]), Operation::Unlink { name: name("a") }),
        (request(opcode::RMDIR, &[Text(b"a\0")]), Operation::RmDir { name: name("a") }),
        (request(opcode::RENAME, &[U64(9), Text(b"a\0bc\0")]), rename(0)),
        (
            request(opcode::RENAME2, &[U64(9), U32(RENAME_NOREPLACE), U32(0), Text(b"a\0bc\0")]),
            rename(RENAME_NOREPLACE),
        ),
        (request(opcode::LINK, &[U64(9), Text(b"a\0")]), Operation::Link { nodeid: 9, name: name("a") }),
        (
            request(opcode::CREATE, &[U32(flags), U32(mode), U32(umask), U32(0), Text(b"a\0")]),
            Operation::Create { name: name("a"), mode, umask, flags },
        ),
    ]
}

/// Operations on open files and directories, as the kernel writes them.
fn open_file_operations() -> Vec<(Bytes, Operation)> {
    let (fh, offset, size, owner, flags) = (7, 1 << 40, 3, 77, 0o2);
    let read = [U64(fh), U64(offset), U32(size), U32(0), U64(owner), U32(flags), U32(0)];
    let write = [U64(fh), U64(offset), U32(size), U32(WRITE_CACHE), U64(owner), U32(flags), U32(0), Text(b"abc")];
    let release = [U64(fh), U32(flags), U32(1), U64(owner)];
    let [sync, data_sync] = [0, 1].map(|flag| [U64(fh), U32(flag), U32(0)]);
    let lock = [U64(fh), U64(owner), U64(0), U64(9), U32(1), U32(300), U32(1), U32(0)];
    let lock_request =
        LockRequest { fh, owner, lock: FileLock { start: 0, end: 9, kind: 1, pid: 300 }, is_flock: true };
    let lseek = [U64(fh), U64(offset), U32(4), U32(0)];
    vec![
        (request(opcode::OPEN, &[U32(flags), U32(0)]), Operation::Open { flags }),
        (request(opcode::READ, &read), Operation::Read { fh, offset, size, flags }),
        (
            request(opcode::WRITE, &write),
            Operation::Write { fh, offset, data: name("abc"), write_flags: WRITE_CACHE, flags },
        ),
        (request(opcode::FLUSH, &[U64(fh), U32(0), U32(0), U64(owner)]), Operation::Flush { fh, lock_owner: owner }),
        (request(opcode::RELEASE, &release), Operation::Release { fh, flags }),
        (request(opcode::FSYNC, &sync), Operation::Fsync { fh, data_only: false }),
        (request(opcode::FSYNC, &data_sync), Operation::Fsync { fh, data_only: true }),
        (request(opcode::OPENDIR, &[U32(flags), U32(0)]), Operation::OpenDir { flags }),
        (request(opcode::READDIR, &read), Operation::ReadDir { fh, offset, size }),
        (request(opcode::READDIRPLUS, &read), Operation::ReadDirPlus { fh, offset, size }),
        (request(opcode::RELEASEDIR, &release), Operation::ReleaseDir { fh }),
        (request(opcode::FSYNCDIR, &data_sync), Operation::FsyncDir { fh, data_only: true }),
        (request(opcode::GETLK, &lock), Operation::GetLk(lock_request)),
        (request(opcode::SETLK, &lock), Operation::SetLk(lock_request)),
        (request(opcode::SETLKW, &lock), Operation::SetLkW(lock_request)),
        (request(opcode::LSEEK, &lseek), Operation::Lseek { fh, offset, whence: 4 }),
    ]
}

/// The remaining operations, as the kernel writes them.
fn other_operations() -> Vec<(Bytes, Operation)> {
    let forgets = vec![Forget { nodeid: 2, lookups: 1 }, Forget { nodeid: 3, lookups: 4 }];
    let forget_many = [U32(2), U32(0), U64(2), U64(1), U64(3), U64(4)];
    vec![
        (request(opcode::DESTROY, &[]), Operation::Destroy),
        (request(opcode::FORGET, &[U64(3)]), Operation::Forget { lookups: 3 }),
        (request(opcode::BATCH_FORGET, &forget_many), Operation::BatchForget(forgets)),
        (request(opcode::GETATTR, &[U32(0), U32(0), U64(7)]), Operation::GetAttr { fh: None }),
        (request(opcode::GETATTR, &[U32(1), U32(0), U64(7)]), Operation::GetAttr { fh: Some(7) }),
        (request(opcode::READLINK, &[]), Operation::ReadLink),
        (request(opcode::STATFS, &[]), Operation::StatFs),
        (request(opcode::ACCESS, &[U32(4), U32(0)]), Operation::Access { mask: 4 }),
        (request(opcode::INTERRUPT, &[U64(42)]), Operation::Interrupt { unique: 42 }),
        (request(opcode::GETXATTR, &[U32(0), U32(0), Text(b"user.a\0")]), Operation::Xattr),
        (request(opcode::SETXATTR, &[U32(1), U32(0), Text(b"user.a\0b")]), Operation::Xattr),
        (request(opcode::LISTXATTR, &[U32(0), U32(0)]), Operation::Xattr),
        (request(opcode::REMOVEXATTR, &[Text(b"user.a\0")]), Operation::Xattr),
        (request(opcode::IOCTL, &[]), Operation::Ioctl),
        (request(opcode::POLL, &[]), Operation::Poll),
        (request(opcode::FALLOCATE, &[]), Operation::Fallocate),
        (request(opcode::COPY_FILE_RANGE, &[]), Operation::CopyFileRange),
        (request(opcode::COPY_FILE_RANGE_64, &[]), Operation::CopyFileRange),
        (request(opcode::SYNCFS, &[U64(0)]), Operation::SyncFs),
        (request(opcode::TMPFILE, &[]), Operation::TmpFile),
        (request(opcode::STATX, &[]), Operation::Statx),
        (request(opcode::NOTIFY_REPLY, &[]), Operation::NotifyReply),
        (request(48, &[]), Operation::Unsupported),
        (request(7, &[]), Operation::Unsupported),
        (request(u32::MAX, &[]), Operation::Unsupported),
    ]
}

fn all_operations() -> Vec<(Bytes, Operation)> {
    [name_operations(), open_file_operations(), other_operations(), set_attrs(), inits()].concat()
}

/// SETATTR with the bits `valid`.
fn set_attr(valid: u32) -> Bytes {
    let (size, owner, reserved) = (U64(10), U64(0), U32(0));
    let (atime, mtime, ctime) = (U64(-2i64 as u64), U64(200), U64(300));
    let (mode, uid, gid) = (U32(0o644), U32(1), U32(2));
    let fields = [
        [U32(valid), reserved, U64(7), size, owner, atime, mtime, ctime],
        [U32(1), U32(2), U32(3), mode, reserved, uid, gid, reserved],
    ];
    request(opcode::SETATTR, &fields.concat())
}

fn set_attrs() -> Vec<(Bytes, Operation)> {
    let all = SetAttr {
        fh: Some(7),
        size: Some(10),
        mode: Some(0o644),
        uid: Some(1),
        gid: Some(2),
        atime: TimeChange::To(Timestamp { secs: -2, nanos: 1 }),
        mtime: TimeChange::Now,
        kill_suidgid: true,
    };
    let mtime = TimeChange::To(Timestamp { secs: 200, nanos: 2 });
    vec![
        (set_attr(0), Operation::SetAttr(SetAttr::default())),
        (set_attr(0b1001_0111_1111), Operation::SetAttr(all)),
        (set_attr(0b10_0000), Operation::SetAttr(SetAttr { mtime, ..SetAttr::default() })),
    ]
}

/// INIT as of 7.31 and of 7.45.
fn inits() -> Vec<(Bytes, Operation)> {
    let max_readahead = 131_072;
    let old = [U32(7), U32(31), U32(max_readahead), U32(0x3ff_fffb)];
    let new = [U32(7), U32(45), U32(max_readahead), U32(0x73ff_fffb), U32(0x1f8), Text(&[0; 44])];
    vec![
        (
            request(opcode::INIT, &old),
            Operation::Init(InitIn { major: 7, minor: 31, max_readahead, flags: 0x3ff_fffb }),
        ),
        (
            request(opcode::INIT, &new),
            Operation::Init(InitIn { major: 7, minor: 45, max_readahead, flags: 0x1f8_73ff_fffb }),
        ),
    ]
}

#[test]
fn each_operation_decodes_to_its_arguments() {
    let header = |opcode| Header { unique: 42, nodeid: 5, uid: 1000, gid: 100, pid: 300, opcode };
    for (bytes, op) in all_operations() {
        let decoded = Request::decode(&bytes).unwrap_or_else(|e| panic!("{op:?}: {e}"));
        assert_eq!(decoded, Request { header: header(decoded.header.opcode), op });
        assert_eq!(Header::decode(&bytes), Ok(decoded.header));
    }
}

#[test]
fn truncated_request_is_refused_or_needs_no_more() {
    for (bytes, op) in all_operations() {
        for len in Header::LEN..bytes.len() {
            let mut cut = bytes[..len].to_vec();
            cut[..4].copy_from_slice(&(len as u32).to_ne_bytes());
            let cut = Bytes::from(cut);
            match Request::decode(&cut) {
                // Only padding, or arguments that nobody reads, may be missing.
                Ok(request) => assert_eq!(request.op, op),
                Err(_) => assert!(Header::decode(&cut).is_ok(), "{op:?}: an error can be answered"),
            }
            assert_eq!(
                Request::decode(&bytes.slice(..len)),
                Err(RequestError::Length { stated: bytes.len() as u32, received: len })
            );
        }
    }
}

#[test]
fn write_data_is_a_slice_of_the_message() {
    let fields = [U64(7), U64(0), U32(3), U32(0), U64(0), U32(0), U32(0), Text(b"abc")];
    let bytes = request(opcode::WRITE, &fields);
    let Ok(Request { op: Operation::Write { data, .. }, .. }) = Request::decode(&bytes) else { panic!() };
    assert_eq!(data.as_ptr(), bytes[bytes.len() - 3..].as_ptr());
}

#[test]
fn extensions_after_the_arguments_are_ignored() {
    let mut bytes = request(opcode::LOOKUP, &[Text(b"a\0extended")]).to_vec();
    bytes[36..38].copy_from_slice(&1u16.to_ne_bytes());
    let decoded = Request::decode(&bytes.clone().into()).unwrap();
    assert_eq!(decoded.op, Operation::Lookup { name: name("a") });
    bytes[36..38].copy_from_slice(&2u16.to_ne_bytes());
    assert_eq!(Request::decode(&bytes.into()), Err(RequestError::Truncated));
}

#[test]
fn false_count_or_length_is_refused() {
    let forgets = request(opcode::BATCH_FORGET, &[U32(u32::MAX), U32(0), U64(1), U64(1)]);
    assert_eq!(Request::decode(&forgets), Err(RequestError::Truncated));
    let write = [U64(7), U64(0), U32(u32::MAX), U32(0), U64(0), U32(0), U32(0), Text(b"abc")];
    assert_eq!(Request::decode(&request(opcode::WRITE, &write)), Err(RequestError::Truncated));
    let name = request(opcode::LOOKUP, &[Text(b"abc")]);
    assert_eq!(Request::decode(&name), Err(RequestError::UnterminatedName));
}

#[test]
fn only_forgets_and_interrupts_need_no_reply() {
    for (bytes, op) in all_operations() {
        let silent = matches!(
            op,
            Operation::Forget { .. } | Operation::BatchForget(_) | Operation::Interrupt { .. } | Operation::NotifyReply
        );
        assert_eq!(Request::decode(&bytes).unwrap().needs_reply(), !silent);
    }
}

/// A reply as the kernel reads it.
fn reply(fields: &[Field]) -> Vec<u8> {
    let body = structure(fields);
    [structure(&[U32(16 + body.len() as u32), U32(0), U64(42)]), body].concat()
}

fn attr() -> Attr {
    let time = |secs, nanos| Timestamp { secs, nanos };
    Attr {
        ino: 1,
        size: 2,
        blocks: 3,
        atime: time(-4, 7),
        mtime: time(5, 8),
        ctime: time(6, 9),
        mode: FileKind::Regular.mode_bits() | 0o644,
        nlink: 11,
        uid: 12,
        gid: 13,
        rdev: 14,
        blksize: 4096,
    }
}

const ATTR: [Field; 16] = [
    U64(1),
    U64(2),
    U64(3),
    U64(-4i64 as u64),
    U64(5),
    U64(6),
    U32(7),
    U32(8),
    U32(9),
    U32(0o100_644),
    U32(11),
    U32(12),
    U32(13),
    U32(14),
    U32(4096),
    U32(0),
];

fn entry() -> Entry {
    let (entry_valid, attr_valid) = (Duration::from_millis(1500), Duration::from_secs(2));
    Entry { nodeid: 9, generation: 3, attr: attr(), entry_valid, attr_valid }
}

fn entry_fields() -> Vec<Field<'static>> {
    [&[U64(9), U64(3), U64(1), U64(2), U32(500_000_000), U32(0)][..], &ATTR].concat()
}

#[test]
fn each_reply_has_the_kernels_layout() {
    let opened = Opened { fh: 7, keep_cache: true, no_flush: true, ..Opened::default() };
    let all_flags = Opened {
        fh: 7,
        direct_io: true,
        keep_cache: true,
        nonseekable: true,
        cache_dir: true,
        no_flush: true,
        parallel_direct_writes: true,
    };
    let statfs = StatFs { blocks: 1, bfree: 2, bavail: 3, files: 4, ffree: 5, bsize: 6, namelen: 7, frsize: 8 };
    let statfs_fields = [U64(1), U64(2), U64(3), U64(4), U64(5), U32(6), U32(7), U32(8), Text(&[0; 28])];
    let valid = Duration::new(1, 2);
    let lock = FileLock { start: 1, end: 2, kind: 2, pid: 0 };
    let open = |flags| [U64(7), U32(flags), U32(0)];
    for (result, expected) in [
        (Reply::Empty, reply(&[])),
        (Reply::Entry(entry()), reply(&entry_fields())),
        (Reply::Attr { attr: attr(), valid }, reply(&[&[U64(1), U32(2), U32(0)][..], &ATTR].concat())),
        (Reply::Target(name("../to")), reply(&[Text(b"../to")])),
        (Reply::Opened(opened), reply(&open(0b10_0010))),
        (Reply::Opened(all_flags), reply(&open(0b110_1111))),
        (Reply::Created(entry(), opened), reply(&[&entry_fields()[..], &open(0b10_0010)].concat())),
        (Reply::Data(name("abc")), reply(&[Text(b"abc")])),
        (Reply::Written { size: 3 }, reply(&[U32(3), U32(0)])),
        (Reply::Directory(name("page")), reply(&[Text(b"page")])),
        (Reply::StatFs(statfs), reply(&statfs_fields)),
        (Reply::Lock(lock), reply(&[U64(1), U64(2), U32(2), U32(0)])),
        (Reply::Lseek(1 << 40), reply(&[U64(1 << 40)])),
    ] {
        let encoded = result.encode(42);
        let [head, data] = encoded.slices();
        assert_eq!([&head[..], &data[..]].concat(), expected, "{result:?}");
    }
}

#[test]
fn an_error_is_negative_in_a_header() {
    assert_eq!(encode_error(42, Errno::ENOENT)[..], structure(&[U32(16), U32(-2i32 as u32), U64(42)]));
    assert_eq!(Errno::ENOENT.to_string(), "ENOENT");
    assert_eq!(Errno(4000).to_string(), "errno 4000");
}

#[test]
fn each_notification_has_the_kernels_layout() {
    let message = |code: u32, fields: &[Field]| {
        let body = structure(fields);
        [structure(&[U32(16 + body.len() as u32), U32(code), U64(0)]), body].concat()
    };
    let expire = |expire_only| Notification::InvalEntry { parent: 5, name: name("ab"), expire_only };
    for (notification, expected) in [
        (Notification::InvalInode { nodeid: 5, offset: -1, len: 0 }, message(2, &[U64(5), U64(u64::MAX), U64(0)])),
        (expire(false), message(3, &[U64(5), U32(2), U32(0), Text(b"ab\0")])),
        (expire(true), message(3, &[U64(5), U32(2), U32(1), Text(b"ab\0")])),
        (
            Notification::Delete { parent: 5, child: 9, name: name("ab") },
            message(6, &[U64(5), U64(9), U32(2), U32(0), Text(b"ab\0")]),
        ),
        (Notification::IncEpoch, message(8, &[])),
    ] {
        assert_eq!(notification.encode(), expected, "{notification:?}");
    }
}

#[test]
fn directory_page_holds_what_fits() {
    let mut page = DirectoryPage::new(24 + 8 + 24 + 8 + 7);
    assert!(page.is_empty());
    assert!(page.push(1, 10, FileKind::Directory, b"."));
    assert!(page.push(2, 11, FileKind::Regular, b"eightlen"));
    assert!(!page.push(3, 12, FileKind::Regular, b"c"), "7 bytes are left");
    let expected = [
        [U64(1), U64(10), U32(1), U32(4), Text(b".\0\0\0\0\0\0\0")],
        [U64(2), U64(11), U32(8), U32(8), Text(b"eightlen")],
    ];
    assert_eq!(page.into_bytes(), structure(&expected.concat()));
}

#[test]
fn directory_page_with_attributes_holds_what_fits() {
    let mut page = DirectoryPage::new(159 + 160);
    assert!(page.push_plus(&entry(), 10, b"a"));
    assert!(!page.push_plus(&entry(), 11, b"b"), "159 bytes are left");
    let dirent = [U64(1), U64(10), U32(1), U32(8), Text(b"a\0\0\0\0\0\0\0")];
    assert_eq!(page.into_bytes(), structure(&[&entry_fields()[..], &dirent].concat()));
}

#[test]
fn file_kinds_agree_with_modes() {
    use FileKind::*;
    for kind in [Unknown, Fifo, CharDevice, Directory, BlockDevice, Regular, SymLink, Socket] {
        assert_eq!(FileKind::of_mode(kind.mode_bits() | 0o7777), kind);
    }
    assert_eq!(Regular.mode_bits(), 0o100_000);
}

fn offer(minor: u32, flags: u64) -> InitIn {
    InitIn { major: 7, minor, max_readahead: 131_072, flags }
}

#[test]
fn init_accepts_the_wanted_features_that_are_offered() {
    let all = negotiate(&offer(45, u64::MAX), &Wanted::default()).unwrap();
    assert_eq!(all.flags, WANTED_FLAGS);
    assert_eq!((all.minor, all.max_readahead), (45, 131_072));
    assert_eq!((all.max_write, all.max_pages), (1 << 20, 256));
    assert!(all.can_expire() && all.can_inc_epoch());
    let refused = POSIX_LOCKS | FLOCK_LOCKS | WRITEBACK_CACHE | AUTO_INVAL_DATA | NO_OPEN_SUPPORT;
    assert_eq!(all.flags & (refused | EXPORT_SUPPORT | CACHE_SYMLINKS), 0);

    let none = negotiate(&offer(31, 0), &Wanted::default()).unwrap();
    assert_eq!((none.minor, none.flags, none.max_write, none.max_pages), (31, 0, 32 * 4096, 32));
    assert!(!none.can_expire() && !none.can_inc_epoch());
    let large_pages = Wanted { page_size: 65_536, ..Wanted::default() };
    assert_eq!(negotiate(&offer(45, u64::MAX), &large_pages).unwrap().max_pages, 16);
}

#[test]
fn init_refuses_other_versions() {
    let with = |major, minor| negotiate(&InitIn { major, ..offer(minor, 0) }, &Wanted::default());
    let old = with(7, 30).unwrap_err();
    assert_eq!(old, VersionError::TooOld { major: 7, minor: 30 });
    assert!(old.to_string().contains("too old"));
    assert!(matches!(with(6, 99), Err(VersionError::TooOld { .. })));
    assert!(matches!(with(8, 0), Err(VersionError::TooNew { .. })));
    assert_eq!(with(7, 99).unwrap().minor, MINOR_MAX);
}

#[test]
fn init_reply_has_the_kernels_layout() {
    let out = negotiate(&offer(45, u64::MAX), &Wanted::default()).unwrap();
    let low = out.flags as u32;
    let limits = [U16(64), U16(48), U32(1 << 20), U32(1), U16(256), U16(0)];
    let head = [U32(7), U32(45), U32(131_072), U32(low)];
    let tail = [U32(0b1_1000), Text(&[0; 28])];
    assert_eq!(Reply::Init(out).encode(42).head, reply(&[&head[..], &limits, &tail].concat()));
}

proptest! {
    #[test]
    fn random_arguments_never_panic(opcode in 0u32..60, body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Request::decode(&request(opcode, &[Text(&body)]));
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let bytes = Bytes::from(bytes);
        let _ = Header::decode(&bytes);
        let _ = Request::decode(&bytes);
    }
}
