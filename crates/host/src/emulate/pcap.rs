//! Packet captures: a pcapng file for each station, in which each sent frame has its fate. Times are the channel's,
//! so the files of two runs with the same traffic agree.
//!
//! A separate thread writes, so that a slow disk delays no frame. Frames that it cannot write are dropped and
//! counted. A disk that accepts nothing for long does not block the end: the thread is abandoned.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use remora_base::Time;
use remora_channel::Fate;
use tempfile::NamedTempFile;

use super::setup::{DEVICE, Station};

/// Maximum orders that wait for the writer.
const ORDERS_MAX: usize = 4096;
/// Time for the disk to write a frame, at the end, before it is given up.
const STUCK_MAX: Duration = Duration::from_secs(10);

/// What a station did with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moment {
    /// The frame was sent, or dropped.
    Sent(Fate),
    /// The frame was received.
    Received,
}

impl Moment {
    fn comment(self) -> &'static str {
        match self {
            Moment::Received => "received",
            Moment::Sent(Fate::Delivered) => "sent: delivered",
            Moment::Sent(Fate::QueueFull) => "dropped: queue full",
            Moment::Sent(Fate::Collided) => "dropped: collided sixteen times",
            Moment::Sent(Fate::BadPeriod) => "sent: lost, bad period",
            Moment::Sent(Fate::RandomLoss) => "sent: lost, random",
            Moment::Sent(Fate::ReceiverFull) => "sent: lost, receiver full",
        }
    }

    /// The direction in `epb_flags`.
    fn flags(self) -> u32 {
        match self {
            Moment::Received => 1,
            Moment::Sent(_) => 2,
        }
    }
}

struct Entry {
    station: usize,
    /// Time since 1970.
    at: Duration,
    moment: Moment,
    packet: Bytes,
}

/// Entries, and the time before which no more follow.
struct Batch {
    entries: Vec<Entry>,
    complete: Duration,
}

/// An order to the writer.
enum Order {
    Write(Batch),
    /// Flush to disk; returns the number of frames that were not written.
    Settle(Sender<u64>),
}

/// The capture files of all stations.
#[derive(Debug)]
pub(super) struct Captures {
    entries: Vec<Entry>,
    orders: Option<SyncSender<Order>>,
    writer: Option<Writer>,
    missed: u64,
}

/// The thread that writes.
#[derive(Debug)]
struct Writer {
    thread: JoinHandle<()>,
    /// Number of frames written.
    written: Arc<AtomicU64>,
    /// Disconnects when the thread ends.
    over: Receiver<Infallible>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {:?} {} B", self.station, self.at, self.moment, self.packet.len())
    }
}

impl Captures {
    /// Creates the files, and their directory if missing.
    pub(super) fn create(dir: &Path, stations: impl Iterator<Item = Station>) -> io::Result<Captures> {
        fs::create_dir_all(dir)?;
        // No file is replaced before all can be.
        let drafts = stations.map(|s| Draft::make(dir.join(file_name(s)))).collect::<io::Result<Vec<_>>>()?;
        let files = drafts.into_iter().map(Draft::take_place).collect::<io::Result<Vec<_>>>()?;
        let (orders, incoming) = sync_channel(ORDERS_MAX);
        let writer = Writer::start(files, incoming)?;
        Ok(Captures { entries: Vec::new(), orders: Some(orders), writer: Some(writer), missed: 0 })
    }

    /// Records what `station` did at `at` in a channel that began at `wall`.
    pub(super) fn add(&mut self, station: Station, wall: SystemTime, at: Time, moment: Moment, packet: Bytes) {
        self.entries.push(Entry { station: station.index(), at: since_1970(wall, at), moment, packet });
    }

    /// Passes the entries to the writer; none from before `now` follow.
    pub(super) fn pass_on(&mut self, wall: SystemTime, now: Time) {
        let (Some(orders), false) = (&self.orders, self.entries.is_empty()) else { return };
        let batch = Batch { entries: std::mem::take(&mut self.entries), complete: since_1970(wall, now) };
        let n = batch.entries.len() as u64;
        if orders.try_send(Order::Write(batch)).is_err() {
            self.missed += n;
        }
    }

    /// Requests a flush. The receiver gets the number of frames not written, or nothing if the writer is far
    /// behind.
    pub(super) fn settle(&self) -> Receiver<u64> {
        let (told, settled) = channel();
        let _ = self.orders.as_ref().map(|orders| orders.try_send(Order::Settle(told)));
        settled
    }

    /// Counts frames that cannot be passed on.
    pub(super) fn miss(&mut self, frames: u64) {
        self.missed += frames;
    }

    /// Number of frames dropped.
    pub(super) fn missed(&self) -> u64 {
        self.missed
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(writer) = self.writer.take() {
            writer.finish(STUCK_MAX);
        }
    }
}

impl Writer {
    fn start<W: Write + Send + 'static>(files: Vec<Capture<W>>, incoming: Receiver<Order>) -> io::Result<Writer> {
        let written = Arc::new(AtomicU64::new(0));
        let (ends, over) = channel();
        let count = written.clone();
        let thread = std::thread::Builder::new().name("captures".into()).spawn(move || {
            write_all(files, &incoming, &count);
            drop(ends);
        })?;
        Ok(Writer { thread, written, over })
    }

    /// Waits until all is written, unless nothing is for `stuck`; returns whether it is.
    fn finish(self, stuck: Duration) -> bool {
        let mut before = self.written.load(Relaxed);
        while let Err(RecvTimeoutError::Timeout) = self.over.recv_timeout(stuck) {
            let now = self.written.load(Relaxed);
            if now == before {
                return false;
            }
            before = now;
        }
        self.thread.join().is_ok()
    }
}

fn since_1970(wall: SystemTime, at: Time) -> Duration {
    wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().saturating_add(at.since(Time::ZERO))
}

fn file_name(station: Station) -> String {
    match station {
        Station::Base => "base.pcapng".into(),
        Station::Mobile(i) => format!("mobile-{}.pcapng", i + 1),
    }
}

/// A capture file in progress.
struct Capture<W: Write> {
    /// `None` after an error: later frames would be misplaced.
    file: Option<PcapNgWriter<BufWriter<W>>>,
    /// Frames not completely written to the disk.
    held: u64,
    /// Frames missing in the file.
    missed: u64,
}

/// A new file that will replace a regular one. An existing file is neither opened nor written: in a directory that
/// others can write to, it may be a link to any file.
struct Draft {
    capture: Capture<File>,
    file: NamedTempFile,
    path: PathBuf,
}

impl Draft {
    fn make(path: PathBuf) -> io::Result<Draft> {
        if fs::symlink_metadata(&path).is_ok_and(|there| !there.is_file()) {
            return Err(io::Error::other(format!("{} is there and not a regular file", path.display())));
        }
        let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The user's umask decides about other readers.
        let mode = fs::Permissions::from_mode(0o666);
        let file = tempfile::Builder::new().prefix(".remora-pcap-").permissions(mode).tempfile_in(dir)?;
        Ok(Draft { capture: Capture::new(file.as_file().try_clone()?)?, file, path })
    }

    fn take_place(self) -> io::Result<Capture<File>> {
        // A link created meanwhile is itself replaced.
        self.file.persist(self.path).map_err(|e| e.error)?;
        Ok(self.capture)
    }
}

impl<W: Write> Capture<W> {
    fn new(file: W) -> io::Result<Capture<W>> {
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::RAW, // an IP packet without anything before it
            snaplen: 0,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(DEVICE)),
                InterfaceDescriptionOption::IfTsResol(9), // nanoseconds
            ],
        };
        let mut pcap = PcapNgWriter::new(BufWriter::new(file)).map_err(io::Error::other)?;
        pcap.write_pcapng_block(interface).map_err(io::Error::other)?;
        pcap.get_mut().flush()?;
        Ok(Capture { file: Some(pcap), held: 0, missed: 0 })
    }

    fn write(&mut self, entry: &Entry) {
        let Some(file) = &mut self.file else { return self.missed += 1 };
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: entry.at,
            original_len: u32::try_from(entry.packet.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(&entry.packet),
            options: vec![
                EnhancedPacketOption::Comment(Cow::Borrowed(entry.moment.comment())),
                EnhancedPacketOption::Flags(entry.moment.flags()),
            ],
        };
        let before = file.get_ref().buffer().len();
        let written = file.write_pcapng_block(block);
        self.held += 1;
        match written {
            // The buffer was written, and holds at most the end of this frame.
            Ok(bytes) if file.get_ref().buffer().len() < before + bytes => self.held = 1,
            Ok(_) => {}
            Err(_) => self.fail(),
        }
    }

    fn flush(&mut self) {
        match self.file.as_mut().map(|file| file.get_mut().flush()) {
            Some(Err(_)) => self.fail(),
            Some(Ok(())) | None => self.held = 0,
        }
    }

    /// A full disk ends a capture, not the run.
    fn fail(&mut self) {
        self.file = None;
        self.missed += std::mem::take(&mut self.held);
    }
}

/// Writes entries ordered by time: the fate of a frame is known when it starts, and a delayed frame starts later
/// than it is recorded.
fn write_all<W: Write>(mut files: Vec<Capture<W>>, incoming: &Receiver<Order>, written: &AtomicU64) {
    let mut waiting: BTreeMap<(Duration, u64), Entry> = BTreeMap::new();
    let mut number = 0u64;
    let write = |files: &mut Vec<Capture<W>>, entry: Entry| {
        if let Some(file) = files.get_mut(entry.station) {
            file.write(&entry);
        }
        written.fetch_add(1, Relaxed);
    };
    while let Ok(order) = incoming.recv() {
        let batch = match order {
            Order::Write(batch) => batch,
            Order::Settle(told) => {
                files.iter_mut().for_each(Capture::flush);
                // The caller may have gone.
                let _ = told.send(files.iter().map(|f| f.missed).sum());
                continue;
            }
        };
        for entry in batch.entries {
            waiting.insert((entry.at, number), entry);
            number += 1;
        }
        let later = waiting.split_off(&(batch.complete, 0));
        for entry in std::mem::replace(&mut waiting, later).into_values() {
            write(&mut files, entry);
        }
    }
    for entry in waiting.into_values() {
        write(&mut files, entry);
    }
    files.iter_mut().for_each(Capture::flush);
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use pcap_file::pcapng::{Block, PcapNgReader};

    use super::*;

    /// A disk with limited room.
    #[derive(Clone)]
    struct Disk {
        room: usize,
        bytes: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut kept = self.bytes.lock().unwrap();
            match bytes.len().min(self.room - kept.len()) {
                0 => Err(io::ErrorKind::StorageFull.into()),
                fits => {
                    kept.extend_from_slice(&bytes[..fits]);
                    Ok(fits)
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Complete frames in a capture.
    fn frames(bytes: &[u8]) -> u64 {
        let mut reader = PcapNgReader::new(bytes).unwrap();
        let blocks = std::iter::from_fn(|| reader.next_block()?.ok().map(|b| matches!(b, Block::EnhancedPacket(_))));
        blocks.filter(|is_frame| *is_frame).count() as u64
    }

    /// Creates something at the second path that may lead to the first.
    type Put = fn(&Path, &Path) -> io::Result<()>;

    #[test]
    fn capture_creates_new_file_and_follows_no_link() {
        let place = tempfile::tempdir().unwrap();
        let (dir, precious) = (place.path().join("d"), place.path().join("precious"));
        let capture = dir.join("base.pcapng");
        let put: [(&str, Put, bool); 5] = [
            ("nothing", |_, _| Ok(()), true),
            ("a file", |_, there| fs::write(there, [7; 100_000]), true),
            ("a second name", |precious, there| fs::hard_link(precious, there), true),
            ("a link", |precious, there| std::os::unix::fs::symlink(precious, there), false),
            (
                "a dangling link",
                |precious, there| std::os::unix::fs::symlink(precious.with_extension("no"), there),
                false,
            ),
        ];
        for (what, put, taken) in put {
            fs::create_dir(&dir).unwrap();
            fs::write(&precious, "precious").unwrap();
            put(&precious, &capture).unwrap();
            match Captures::create(&dir, std::iter::once(Station::Base)) {
                Ok(captures) => {
                    drop(captures);
                    assert!(taken, "{what}");
                    let there = fs::symlink_metadata(&capture).unwrap();
                    assert!(there.is_file() && (1..1000).contains(&there.len()), "{what}: {there:?}");
                }
                Err(e) => assert!(!taken && e.to_string().contains("not a regular file"), "{what}: {e}"),
            }
            assert_eq!(fs::read(&precious).unwrap(), b"precious", "{what}");
            assert!(!precious.with_extension("no").exists(), "{what}");
            let names = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name());
            assert!(names.collect::<Vec<_>>().iter().all(|n| n == "base.pcapng"), "{what}");
            fs::remove_dir_all(&dir).unwrap();
        }
    }

    #[test]
    fn no_capture_is_replaced_unless_all_can_be() {
        let dir = tempfile::tempdir().unwrap();
        let (good, taken) = (dir.path().join("base.pcapng"), dir.path().join("mobile-1.pcapng"));
        fs::write(&good, "an earlier run").unwrap();
        fs::create_dir(&taken).unwrap();
        let stations = [Station::Base, Station::Mobile(0)];
        let refused = Captures::create(dir.path(), stations.into_iter()).unwrap_err();
        assert!(refused.to_string().contains("mobile-1.pcapng"), "{refused}");
        assert_eq!(fs::read(&good).unwrap(), b"an earlier run");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "something else is left there");
    }

    #[test]
    fn frames_lost_to_full_disk_are_counted() {
        for (room, len, all) in [(1 << 20, 100, true), (20_000, 100, false), (20_000, 9000, false), (500, 100, false)] {
            let disk = Disk { room, bytes: Arc::default() };
            let files = vec![Capture::new(disk.clone()).unwrap()];
            let (orders, incoming) = channel();
            let at = Duration::from_secs;
            for n in 0..200 {
                let packet = Bytes::from(vec![0x45; len]);
                let entry = Entry { station: 0, at: at(n), moment: Moment::Received, packet };
                orders.send(Order::Write(Batch { entries: vec![entry], complete: at(n + 1) })).unwrap();
            }
            let (told, settled) = channel();
            orders.send(Order::Settle(told)).unwrap();
            drop(orders);
            write_all(files, &incoming, &AtomicU64::new(0));
            let (there, missed) = (frames(&disk.bytes.lock().unwrap()), settled.recv().unwrap());
            // Some frames of the full buffer may be written; they are not relied on.
            let held = 8192 / len as u64 + 1;
            assert!((200..=200 + held).contains(&(there + missed)), "room for {room}: {there} of {len} B, {missed}");
            assert_eq!((there == 200, missed == 0), (all, all));
        }
    }

    /// A disk that accepts a write only on command.
    struct Slow(Receiver<()>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Without a commander, at once.
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn stuck_disk_is_abandoned_and_slow_one_awaited() {
        let entry = |n| {
            let at = Duration::from_secs(n);
            Entry { station: 0, at, moment: Moment::Received, packet: Bytes::from(vec![0x45; 9000]) }
        };
        for takes in [false, true] {
            let (go, disk) = channel();
            (0..4).for_each(|_| go.send(()).unwrap());
            let files = vec![Capture::new(Slow(disk)).unwrap()];
            let (orders, incoming) = sync_channel(8);
            let writer = Writer::start(files, incoming).unwrap();
            let batch = Batch { entries: (0..20).map(entry).collect(), complete: Duration::from_secs(100) };
            orders.send(Order::Write(batch)).unwrap();
            drop(orders);
            let pace = std::thread::spawn(move || {
                while takes && go.send(()).is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                go
            });
            let began = std::time::Instant::now();
            assert_eq!(writer.finish(Duration::from_millis(200)), takes);
            assert!(takes || began.elapsed() < Duration::from_secs(5));
            drop(pace.join().unwrap());
        }
    }
}
