//! Destination of an upload, and the temporary file that may be made before the destination was looked up.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cp::resume::resume_index;
use crate::remote::filesystem::Remote;
use crate::remote::listing::Node;

#[derive(Clone, Debug)]
pub(crate) struct UploadDestination {
    pub(crate) remote: Remote,
    pub(crate) dir: Node,
    pub(crate) name: Vec<u8>,
    /// The object at the destination; `None` before it was looked up.
    pub(crate) old: Option<Option<Node>>,
    /// The temporary file, if it was made already.
    pub(crate) early: Option<EarlyTempFile>,
    /// The server may take another name that this command gives for the same.
    pub(crate) may_fold: bool,
    pub(crate) url: String,
}

impl UploadDestination {
    /// A name in a directory that was not looked up.
    pub(crate) fn new(remote: &Remote, dir: &Node, name: Vec<u8>, url: String) -> UploadDestination {
        UploadDestination {
            remote: remote.clone(),
            dir: dir.clone(),
            name,
            old: None,
            early: None,
            may_fold: false,
            url,
        }
    }
}

/// A temporary file that was made before the destination was looked up.
#[derive(Clone, Debug)]
pub(crate) struct EarlyTempFile {
    node: Node,
    name: Vec<u8>,
    /// An upload uses it.
    is_taken: Arc<AtomicBool>,
}

impl EarlyTempFile {
    /// Makes it in the mounted directory; `None` if anything has its name.
    pub(crate) async fn make(remote: &Remote, source: &Path, name: &[u8]) -> Option<EarlyTempFile> {
        let name = resume_index::upload_temp_name(source, name);
        let node = remote.create(remote.session().root(), &name).await.ok()?;
        Some(EarlyTempFile { node, name, is_taken: Arc::default() })
    }

    pub(crate) fn take(&self) -> Node {
        self.is_taken.store(true, Ordering::Relaxed);
        self.node.clone()
    }

    /// Removes it unless an upload uses it.
    pub(crate) async fn discard(&self, remote: &Remote) {
        let dir = remote.session().root();
        if self.is_taken.load(Ordering::Relaxed) {
            return;
        }
        // Another copy may have replaced it. Best effort.
        if remote.lookup(dir, &self.name).await.is_ok_and(|found| found.fh == self.node.fh) {
            let _ = remote.remove(dir, &self.name).await;
        }
    }
}
