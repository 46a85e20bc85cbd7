//! Captures: a pcapng file for each station, in which every frame it sent says what became of
//! it. Times are the channel's own, so the files of two runs with the same traffic agree.
//!
//! A thread of its own writes, so that a slow disk delays no frame; what it cannot keep up
//! with is left out and counted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use remora_base::Time;
use remora_channel::Fate;

use super::station::{DEVICE, Station};

/// Batches on their way to the writer.
const BATCHES_MAX: usize = 4096;

/// What a station did with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moment {
    /// It was sent, or dropped instead.
    Sent(Fate),
    /// It arrived.
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
    /// Since 1970.
    at: Duration,
    moment: Moment,
    packet: Bytes,
}

/// Entries, and the time before which there will be no more.
struct Batch {
    entries: Vec<Entry>,
    complete: Duration,
}

/// The capture files of all stations.
#[derive(Debug)]
pub(super) struct Captures {
    entries: Vec<Entry>,
    batches: Option<SyncSender<Batch>>,
    writer: Option<JoinHandle<()>>,
    missed: u64,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {:?} {} B", self.station, self.at, self.moment, self.packet.len())
    }
}

impl Captures {
    /// Makes the files, and their directory if it is not there.
    pub(super) fn create(dir: &Path, stations: impl Iterator<Item = Station>) -> io::Result<Captures> {
        fs::create_dir_all(dir)?;
        let files = stations.map(|s| open(&dir.join(file_name(s)))).collect::<io::Result<Vec<_>>>()?;
        let (batches, incoming) = sync_channel(BATCHES_MAX);
        let writer = std::thread::Builder::new().name("captures".into()).spawn(move || write_all(files, &incoming))?;
        Ok(Captures { entries: Vec::new(), batches: Some(batches), writer: Some(writer), missed: 0 })
    }

    /// What `station` did at `at` of a channel that began at `wall`.
    pub(super) fn add(&mut self, station: Station, wall: SystemTime, at: Time, moment: Moment, packet: Bytes) {
        self.entries.push(Entry { station: station.index(), at: since_1970(wall, at), moment, packet });
    }

    /// Gives the writer what there is; there will be nothing from before `now`.
    pub(super) fn pass_on(&mut self, wall: SystemTime, now: Time) {
        let (Some(batches), false) = (&self.batches, self.entries.is_empty()) else { return };
        let batch = Batch { entries: std::mem::take(&mut self.entries), complete: since_1970(wall, now) };
        let n = batch.entries.len() as u64;
        if batches.try_send(batch).is_err() {
            self.missed += n;
        }
    }

    /// Frames left out.
    pub(super) fn missed(&self) -> u64 {
        self.missed
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
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

type Pcap = PcapNgWriter<BufWriter<File>>;

fn open(path: &Path) -> io::Result<Pcap> {
    let interface = InterfaceDescriptionBlock {
        linktype: DataLink::RAW, // an IP packet without anything before it
        snaplen: 0,
        options: vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(DEVICE)),
            InterfaceDescriptionOption::IfTsResol(9), // nanoseconds
        ],
    };
    let mut pcap = PcapNgWriter::new(BufWriter::new(File::create(path)?)).map_err(io::Error::other)?;
    pcap.write_pcapng_block(interface).map_err(io::Error::other)?;
    pcap.get_mut().flush()?;
    Ok(pcap)
}

/// Writes entries in the order of their times: fates are known when a frame starts, and a
/// frame that is held starts later than it is recorded.
fn write_all(mut files: Vec<Pcap>, incoming: &Receiver<Batch>) {
    let mut waiting: BTreeMap<(Duration, u64), Entry> = BTreeMap::new();
    let mut number = 0u64;
    while let Ok(batch) = incoming.recv() {
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
    for file in &mut files {
        let _ = file.get_mut().flush();
    }
}

/// A full disk ends a capture, not the run.
fn write(files: &mut [Pcap], entry: Entry) {
    let Some(file) = files.get_mut(entry.station) else { return };
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
    let _ = file.write_pcapng_block(block);
}
