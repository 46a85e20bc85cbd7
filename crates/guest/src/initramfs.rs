//! The guest's files as a cpio archive in the "newc" format, which the kernel unpacks into memory
//! (Documentation/driver-api/early-userspace/buffer-format in its sources).

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::Kernel;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// Writes the archive: busybox, the modules in loading order, and `init`.
pub fn write(to: &Path, kernel: &Kernel, init: &str) -> io::Result<()> {
    let mut archive = Archive { to: BufWriter::new(File::create(to)?), files: 0 };
    for directory in ["bin", "dev", "mnt", "modules", "proc", "sys", "tmp"] {
        archive.add(directory, DIRECTORY, &[])?;
    }
    archive.add("init", PROGRAM, init.as_bytes())?;
    archive.add("bin/busybox", PROGRAM, &fs::read(&kernel.busybox)?)?;
    for (n, module) in kernel.modules.iter().enumerate() {
        archive.add(&format!("modules/{n:02}.ko"), PROGRAM, &module.read()?)?;
    }
    archive.finish()
}

struct Archive<W> {
    to: W,
    files: u32,
}

impl<W: Write> Archive<W> {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.files += 1;
        let too_long = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        let bytes = u32::try_from(content.len()).map_err(too_long)?;
        let name_bytes = u32::try_from(name.len() + 1).map_err(too_long)?;
        // inode, mode, uid, gid, links, mtime, size, device (2), special device (2), name, check
        let fields = [self.files, mode, 0, 0, 1, 0, bytes, 0, 0, 0, 0, name_bytes, 0];
        let head: String = fields.iter().map(|f| format!("{f:08X}")).collect();
        let header = 6 + head.len() + name.len() + 1;
        write!(self.to, "070701{head}{name}\0{}", "\0".repeat(header.next_multiple_of(4) - header))?;
        self.to.write_all(content)?;
        self.to.write_all(&[0; 3][..content.len().next_multiple_of(4) - content.len()])
    }

    fn finish(mut self) -> io::Result<()> {
        self.add("TRAILER!!!", 0, &[])?;
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_entry_is_aligned_to_four() {
        let mut archive = Archive { to: Vec::new(), files: 0 };
        archive.add("init", PROGRAM, b"12345").unwrap();
        let first = archive.to.len();
        archive.add("ab", DIRECTORY, &[]).unwrap();
        assert_eq!((first % 4, archive.to.len() % 4), (0, 0));
        assert!(archive.to.starts_with(b"070701") && archive.to[first..].starts_with(b"070701"));
        // The second field of the header is the mode, the seventh the size.
        assert_eq!(&archive.to[14..22], b"000081ED");
        assert_eq!(&archive.to[54..62], b"00000005");
    }
}
