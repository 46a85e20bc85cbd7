//! Profiles: what is hoarded of an export, and for whom.

use globset::{Candidate, GlobBuilder, GlobMatcher};

/// Lowest and highest priority of an entry.
pub const HOARD_PRIORITY_MIN: u8 = 1;
pub const HOARD_PRIORITY_MAX: u8 = 100;

/// A glob for the last component of a path.
#[derive(Clone, Debug)]
pub struct NameGlob {
    text: String,
    matcher: GlobMatcher,
}

impl NameGlob {
    /// Parses `*`, `?`, `[a-z]`, `{a,b}` and `\`.
    pub fn parse(text: &str) -> Result<NameGlob, String> {
        if text.is_empty() || text.contains('/') {
            return Err(format!("'{text}' is not a glob for names: expected one component, as in '*.rs'"));
        }
        let built = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build();
        let glob = built.map_err(|error| format!("'{text}' is not a glob: {}", error.kind()))?;
        Ok(NameGlob { text: text.to_owned(), matcher: glob.compile_matcher() })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        self.matcher.is_match_candidate(&Candidate::from_bytes(name))
    }
}

impl PartialEq for NameGlob {
    fn eq(&self, other: &NameGlob) -> bool {
        self.text == other.text
    }
}

impl Eq for NameGlob {}

/// Something to hoard: a file, or a directory with its names and the files in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HoardEntry {
    /// Path from the mounted directory, of components separated by `/`; empty for the directory itself.
    pub path: Vec<u8>,
    /// 1 to 100; the highest comes first.
    pub priority: u8,
    /// All directories below are hoarded, too.
    pub recursive: bool,
    /// Files with other names are left out.
    pub glob: Option<NameGlob>,
}

/// Whose permissions are asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HoardOwner {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// What to hoard.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HoardPlan {
    pub entries: Vec<HoardEntry>,
    pub owner: HoardOwner,
    /// Maximum bytes of the disk cache that hoarded objects take.
    pub bytes_max: u64,
}
