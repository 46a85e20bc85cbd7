//! Where the records of answered calls go.

use std::fmt;
use std::sync::Arc;

use remora_server::AccessRecord;

/// Takes records of answered calls. It is called by the threads that send the replies, so it must not block.
#[derive(Clone)]
pub struct AccessSink(Arc<Take>);

type Take = dyn Fn(&[AccessRecord]) + Send + Sync;

impl AccessSink {
    /// A sink that calls `take` with each batch.
    pub fn new(take: impl Fn(&[AccessRecord]) + Send + Sync + 'static) -> AccessSink {
        AccessSink(Arc::new(take))
    }

    pub(crate) fn take(&self, records: &[AccessRecord]) {
        (self.0)(records);
    }
}

impl fmt::Debug for AccessSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessSink")
    }
}
