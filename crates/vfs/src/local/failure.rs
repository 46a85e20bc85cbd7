//! Who hears of flushes that fail.

use std::fmt;
use std::io;
use std::sync::Arc;

type Hear = dyn Fn(io::Error) + Send + Sync;

/// Hears why a flush failed, once for each, which has changed the [verifier](crate::Vfs::verifier). It must not
/// block: others wait for that disk.
#[derive(Clone, Default)]
pub struct OnFailure(Option<Arc<Hear>>);

impl OnFailure {
    /// Calls `hear`.
    pub fn call(hear: impl Fn(io::Error) + Send + Sync + 'static) -> OnFailure {
        OnFailure(Some(Arc::new(hear)))
    }

    pub(super) fn tell(&self, why: io::Error) {
        if let Some(hear) = &self.0 {
            hear(why);
        }
    }
}

impl fmt::Debug for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "OnFailure(..)" } else { "OnFailure" })
    }
}
