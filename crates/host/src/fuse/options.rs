//! Options of a mount.

/// Options of a mount. Set-id bits and device files of the file system never count.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MountOptions {
    /// What is mounted, as `df` and `mount` show it: `nas:/export`.
    pub fsname: String,
    pub read_only: bool,
    /// Lets users other than the mounting one in.
    pub allow_other: bool,
    /// Maximum length of a READ in bytes; `None` for the kernel's limit.
    pub max_read: Option<u32>,
}

/// Type of the file system after `fuse.`.
pub(super) const SUBTYPE: &str = "remora";

impl MountOptions {
    /// The data of mount(2) for the descriptor `fd` of `/dev/fuse`.
    pub(super) fn for_mount(&self, fd: i32, uid: u32, gid: u32) -> String {
        let mut data = format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid}");
        data.extend(self.common().map(|option| format!(",{option}")));
        data
    }

    /// The options of fusermount3, after `-o`.
    pub(super) fn for_fusermount(&self) -> String {
        let escaped = self.fsname.replace('\\', r"\\").replace(',', r"\,");
        let mut options = format!("fsname={escaped},subtype={SUBTYPE},nosuid,nodev");
        options.push_str(if self.read_only { ",ro" } else { ",rw" });
        options.extend(self.common().map(|option| format!(",{option}")));
        options
    }

    fn common(&self) -> impl Iterator<Item = String> {
        let allow_other = self.allow_other.then(|| "allow_other".to_owned());
        let max_read = self.max_read.map(|bytes| format!("max_read={bytes}"));
        allow_other.into_iter().chain(max_read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_written_as_each_way_of_mounting_wants_them() {
        let plain = MountOptions { fsname: r"nas:/a,b\c".into(), ..MountOptions::default() };
        assert_eq!(plain.for_mount(7, 1000, 100), "fd=7,rootmode=40000,user_id=1000,group_id=100");
        assert_eq!(plain.for_fusermount(), r"fsname=nas:/a\,b\\c,subtype=remora,nosuid,nodev,rw");
        let all = MountOptions { fsname: "x".into(), read_only: true, allow_other: true, max_read: Some(4096) };
        assert!(all.for_mount(7, 0, 0).ends_with("group_id=0,allow_other,max_read=4096"));
        assert!(all.for_fusermount().ends_with("nodev,ro,allow_other,max_read=4096"));
    }
}
