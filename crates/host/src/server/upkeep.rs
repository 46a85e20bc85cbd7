//! What exports hold for a moment is given back where no client asks for anything, too.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::hub::Hub;

/// How often.
const EVERY: Duration = Duration::from_secs(10);

/// Looks after the exports, one turn after the other: a disk that hangs holds up one thread.
pub(super) async fn run(hub: Arc<Hub>) {
    let mut turn = interval(EVERY);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        let exports = hub.exports();
        if spawn_blocking(move || exports.tidy()).await.is_err() {
            return;
        }
    }
}
