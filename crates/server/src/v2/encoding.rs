//! File types and device numbers as NFSv2 encodes them.

/// The file type bits of a mode (stat(2)).
pub(super) mod kind {
    pub(in crate::v2) const MASK: u32 = 0o170_000;
    pub(in crate::v2) const SOCKET: u32 = 0o140_000;
    pub(in crate::v2) const SYMLINK: u32 = 0o120_000;
    pub(in crate::v2) const REGULAR: u32 = 0o100_000;
    pub(in crate::v2) const BLOCK: u32 = 0o060_000;
    pub(in crate::v2) const DIRECTORY: u32 = 0o040_000;
    pub(in crate::v2) const CHAR: u32 = 0o020_000;
    pub(in crate::v2) const FIFO: u32 = 0o010_000;
    /// The permission bits.
    pub(in crate::v2) const PERMISSIONS: u32 = 0o7777;
}

/// Device numbers packed into 32 bits, as Linux does it: compatible with 8 and 8 bits where those suffice.
pub(super) mod device {
    use remora_wire::nfs3::SpecData;

    pub(in crate::v2) fn pack(spec: SpecData) -> u32 {
        (spec.minor & 0xff) | (spec.major & 0xfff) << 8 | (spec.minor & 0xfff00) << 12
    }

    pub(in crate::v2) fn unpack(packed: u32) -> SpecData {
        SpecData { major: packed >> 8 & 0xfff, minor: packed & 0xff | packed >> 12 & 0xfff00 }
    }

    #[test]
    fn device_numbers_round_trip() {
        for (major, minor, packed) in [(8, 1, 0x0801), (0, 255, 255), (4095, 0, 0xf_ff00), (259, 0x1_2345, 0x1231_0345)]
        {
            assert_eq!(pack(SpecData { major, minor }), packed, "{major}:{minor}");
            assert_eq!(unpack(packed), SpecData { major, minor });
        }
    }
}
