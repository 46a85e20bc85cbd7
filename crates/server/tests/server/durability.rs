//! Jobs whose flush somebody else does: nothing is called stable before it is.

use remora_server::{Answer, Started, Unflushed, cache};
use remora_vfs::memory::OpKind;
use remora_vfs::{FileId, Vfs};
use remora_wire::nfs3::{Call, CommitArgs, Fh, Reply, Stable, Status, WriteArgs};

use crate::world::{ROOT, World, decode, encode, udp, write};

/// A file in a file system that leaves its flushes to others.
fn world() -> (World, Fh, FileId) {
    let mut w = World::new(cache::Config::full());
    let root = w.root();
    let fh = w.file(&root, "f");
    w.fs.defer();
    let (id, _) = w.fs.lookup(&ROOT, &w.fs.root(), b"f").unwrap();
    (w, fh, id)
}

fn start(w: &mut World, xid: u32, call: &Call) -> Started {
    w.input(udp(), encode(xid, call));
    let execute = w.take_job();
    execute.job.start()
}

fn unflushed(started: Started) -> Unflushed {
    match started {
        Started::Unflushed(u) => u,
        Started::Done(answer) => panic!("{answer:?}"),
    }
}

fn done(started: Started) -> Answer {
    match started {
        Started::Done(answer) => answer,
        Started::Unflushed(u) => panic!("{u:?}"),
    }
}

/// What the client gets when `call`, whose flush came to `result`, is complete.
fn reply(call: &Call, flush: impl FnOnce(&World, Unflushed) -> Answer) -> Reply {
    let (mut w, ..) = world();
    w.input(udp(), encode(7, call));
    let execute = w.take_job();
    let unflushed = unflushed(execute.job.start());
    let answer = flush(&w, unflushed);
    w.server.complete(w.now, execute.ticket, answer);
    w.drain();
    decode(call.proc(), 7, w.sent.pop().unwrap().payload)
}

#[test]
fn stable_write_is_answered_after_its_flush() {
    let (mut w, fh, id) = world();
    let first = unflushed(start(&mut w, 1, &write(&fh, 0, b"one ")));
    let second = unflushed(start(&mut w, 2, &write(&fh, 4, b"two")));
    assert_eq!((&w.fs.read_all(&id).unwrap()[..], w.fs.read_durable(&id).unwrap().len()), (&b"one two"[..], 0));
    assert_eq!(first.flush().key(), second.flush().key());
    assert_eq!(first.flush().run(&[second.flush()]), Ok(()), "one for both");
    assert_eq!(&w.fs.read_durable(&id).unwrap()[..], b"one two");
    done(first.flushed(Ok(())));
    done(second.flushed(Ok(())));
}

#[test]
fn unstable_writes_and_looks_owe_nothing() {
    let (mut w, fh, _) = world();
    let lazy =
        Call::Write(WriteArgs { fh: fh.clone(), offset: 0, count: 1, stable: Stable::Unstable, data: "x".into() });
    for (xid, call) in [(1, lazy), (2, Call::GetAttr(fh))] {
        done(start(&mut w, xid, &call));
    }
}

#[test]
fn failed_flush_is_reported_to_all_affected_writers() {
    let (mut w, fh, _) = world();
    let before = w.fs.verifier();
    let waited = unflushed(start(&mut w, 1, &write(&fh, 0, b"one")));
    let meanwhile = unflushed(start(&mut w, 2, &write(&fh, 3, b"two")));
    w.fs.fail_next(OpKind::Flush, Status::Io, 1);
    let result = waited.flush().run(&[]);
    assert_eq!(result, Err(Status::Io));
    assert_ne!(w.fs.verifier(), before);
    let failed = format!("{:?}", done(waited.flushed(result)));
    assert!(failed.contains("Err(Other)"), "{failed}");
    // Its own flush finds nothing to do and succeeds, but what it wrote was lost.
    let result = meanwhile.flush().run(&[]);
    assert_eq!(result, Ok(()));
    let failed = format!("{:?}", done(meanwhile.flushed(result)));
    assert!(failed.contains("Err(Other)"), "{failed}");

    let after = unflushed(start(&mut w, 3, &write(&fh, 0, b"three")));
    let result = after.flush().run(&[]);
    assert!(format!("{:?}", done(after.flushed(result))).contains("Ok(())"));
}

#[test]
fn write_verifier_covers_the_safe_data() {
    let (_, fh, _) = world();
    let commit = Call::Commit(CommitArgs { fh: fh.clone(), offset: 0, count: 0 });
    for call in [write(&fh, 0, b"x"), commit] {
        let good = reply(&call, |_, u| {
            let result = u.flush().run(&[]);
            done(u.flushed(result))
        });
        let verf = match good {
            Reply::Write(Ok(ok)) => ok.verf,
            Reply::Commit(Ok(ok)) => ok.verf,
            other => panic!("{other:?}"),
        };
        assert_eq!(verf, world().0.fs.verifier());
        // A full disk, which some file systems notice only now, has an error of its own.
        for why in [Status::Io, Status::NoSpc, Status::DQuot] {
            let bad = reply(&call, |w, u| {
                w.fs.fail_next(OpKind::Flush, why, 1);
                let result = u.flush().run(&[]);
                done(u.flushed(result))
            });
            assert_eq!(bad.status(), Some(why));
        }
    }
}
