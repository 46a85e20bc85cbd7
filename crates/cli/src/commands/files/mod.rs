//! Commands on remote files: `ls`, `cat`, `stat`, `df`, `exports`, `mkdir`, `rm`, `mv`.

pub(crate) mod change;
pub(crate) mod inspect;
pub(crate) mod ls;
pub(crate) mod operands;
