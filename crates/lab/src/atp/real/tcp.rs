//! TCP with deadlines and M-TCP (ATP 02, section 4.2) on the kernel's connections.
//!
//! A connection takes the next object of its queue when the last has been answered, unless half
//! of the object's time has passed; the receiving program answers each object with a byte.
//! TCP_NODELAY is set, for otherwise the end of an object would wait for acknowledgements of what
//! is before it. The socket buffer is the paper's.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;

use bytes::BytesMut;
use remora_base::Time;
use remora_host::emulate::{Emulator, Station};
use remora_sim::atp::message::{Reader, heading};
use remora_sim::atp::{Class, Object, Pace, TcpConfig, Told};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::cell::{Book, Cell};

/// Where the base listens.
const PORT: u16 = 4050;
/// Read at once.
const READ_MAX: usize = 64 << 10;

/// An object that waits for a connection: its number, itself as it came.
type Waiting = (usize, Object);
/// What several connections take objects from.
type Queue = Arc<Mutex<mpsc::Receiver<Waiting>>>;

/// The connections, both ends of each.
pub(super) struct Ends {
    config: TcpConfig,
    /// The mobile's and the base's socket.
    pairs: Vec<(std::net::TcpStream, std::net::TcpStream)>,
}

impl Ends {
    pub(super) fn connect(config: TcpConfig, emulator: &Emulator) -> Result<Ends, String> {
        let at = SocketAddr::new(IpAddr::V4(emulator.addr(Station::Base)), PORT);
        let listener = emulator.within(Station::Base, || TcpListener::bind(at)).map_err(words)?;
        let connect = || {
            let ours = emulator.within(Station::Mobile(0), || std::net::TcpStream::connect(at))?;
            let (theirs, _) = listener.accept()?;
            for socket in [&ours, &theirs] {
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)?;
            }
            if config.depth == 1 {
                rustix::net::sockopt::set_socket_send_buffer_size(&ours, config.send_buffer as usize)?;
            }
            Ok((ours, theirs))
        };
        let pairs = config.lanes.iter().map(|_| connect()).collect::<std::io::Result<_>>().map_err(words)?;
        Ok(Ends { config, pairs })
    }

    /// Sends everything and waits for all answers.
    pub(super) async fn work(&mut self, cell: &Cell<'_>, book: &Book) -> Result<(), String> {
        let mut queues: Vec<(Vec<Class>, mpsc::Sender<Waiting>, Queue)> = Vec::new();
        let mut work: JoinSet<std::io::Result<()>> = JoinSet::new();
        let mut serving: JoinSet<std::io::Result<()>> = JoinSet::new();
        for (classes, (ours, theirs)) in self.config.lanes.iter().zip(self.pairs.drain(..)) {
            // Connections with the same classes share a queue.
            let queue = match queues.iter().find(|(of, ..)| of == classes) {
                Some((.., queue)) => queue.clone(),
                None => {
                    let (put, take) = mpsc::channel(cell.objects.len().max(1));
                    let queue = Arc::new(Mutex::new(take));
                    queues.push((classes.clone(), put, queue.clone()));
                    queue
                }
            };
            serving.spawn(serve(TcpStream::from_std(theirs).map_err(words)?, book.clone()));
            let (answers, stream) = TcpStream::from_std(ours).map_err(words)?.into_split();
            let depth = Arc::new(Semaphore::new(self.config.depth.min(Semaphore::MAX_PERMITS)));
            let (asked, told) = mpsc::channel(cell.objects.len().max(1));
            work.spawn(send(stream, queue, depth.clone(), asked, book.clone()));
            work.spawn(hear(answers, depth, told, book.clone()));
        }
        for (number, object) in cell.objects.iter().enumerate() {
            if cell.pace == Pace::Open {
                book.wait(object.arrival).await;
            }
            let now = book.note(|ledger, now| ledger.entered(number, now));
            if let Some((_, put, _)) = queues.iter().find(|(classes, ..)| classes.contains(&object.class)) {
                // There is room for all.
                let _ = put.send((number, Object { arrival: now, ..*object })).await;
            }
        }
        drop(queues);
        while let Some(ended) = work.join_next().await {
            ended.map_err(|e| e.to_string())?.map_err(words)?;
        }
        Ok(())
    }
}

/// Takes objects from the queue and hands them to the kernel.
async fn send(
    mut stream: OwnedWriteHalf,
    queue: Queue,
    depth: Arc<Semaphore>,
    asked: mpsc::Sender<(usize, Time)>,
    book: Book,
) -> std::io::Result<()> {
    // Given back by each answer.
    while let Ok(turn) = depth.acquire().await {
        turn.forget();
        let Some((number, object)) = next(&queue, &book).await else { break };
        book.note(|ledger, now| ledger.started(number, now));
        let mut message = BytesMut::from(heading(number, object.size));
        message.resize(message.len() + object.size as usize, 0);
        // There is room for all, and whoever hears the answers goes on until this ends.
        let _ = asked.send((number, object.due())).await;
        stream.write_all(&message).await?;
    }
    Ok(())
}

/// The next object that has not waited too long.
async fn next(queue: &Queue, book: &Book) -> Option<Waiting> {
    loop {
        let (number, object) = queue.lock().await.recv().await?;
        let mut is_fresh = true;
        book.note(|ledger, now| {
            is_fresh = now.since(object.arrival) * 2 < object.deadline;
            if !is_fresh {
                ledger.told(number, now, Told::Rejected);
            }
        });
        if is_fresh {
            return Some((number, object));
        }
    }
}

/// Hears the answers, which come in the order of the objects.
async fn hear(
    mut answers: OwnedReadHalf,
    depth: Arc<Semaphore>,
    mut asked: mpsc::Receiver<(usize, Time)>,
    book: Book,
) -> std::io::Result<()> {
    while let Some((number, due)) = asked.recv().await {
        answers.read_u8().await?;
        book.note(|ledger, now| ledger.told(number, now, if now <= due { Told::Delivered } else { Told::Late }));
        depth.add_permits(1);
    }
    Ok(())
}

/// The receiving program.
async fn serve(mut stream: TcpStream, book: Book) -> std::io::Result<()> {
    let (mut reader, mut buffer) = (Reader::default(), vec![0; READ_MAX]);
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let mut answers = Vec::new();
        reader.take(buffer.get(..read).unwrap_or_default(), |number| {
            book.note(|ledger, now| ledger.arrived(number, now));
            answers.push(0);
        });
        stream.write_all(&answers).await?;
    }
}

fn words(e: impl std::fmt::Display) -> String {
    format!("TCP: {e}")
}
