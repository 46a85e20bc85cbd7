//! The file operations a server asks for: local disk and memory.
