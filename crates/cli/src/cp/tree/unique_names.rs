//! Names given in the destination directory: of two sources with the same name the second does not replace the first.

use std::collections::HashSet;
use std::fmt;

use crate::cp::ui::job::Counts;
use crate::output::exit::{Error, Result};

/// The names given.
#[derive(Debug, Default)]
pub(crate) struct UniqueNames {
    names: HashSet<Vec<u8>>,
}

impl UniqueNames {
    /// Runs `copy` of `source` unless `name` was given before. A failed copy gives no name.
    pub(crate) async fn once(
        &mut self,
        name: Option<&[u8]>,
        source: impl fmt::Display,
        counts: &Counts,
        copy: impl Future<Output = Result>,
    ) -> Result {
        if name.is_some_and(|name| self.names.contains(name)) {
            let why = "is not copied: it would replace a file of the same name that was just copied";
            return Err(Error::refused(source, why));
        }
        let before = counts.placed();
        let done = copy.await;
        if counts.placed() > before {
            self.names.extend(name.map(<[u8]>::to_vec));
        }
        done
    }
}
