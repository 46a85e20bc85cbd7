//! Text form of keys: 32 bytes as 44 characters of base64 (RFC 4648, section 4), as in WireGuard.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Bytes of a key.
pub const KEY_LEN: usize = 32;

/// Encodes a key.
pub fn encode(key: &[u8; KEY_LEN]) -> String {
    STANDARD.encode(key)
}

/// Decodes a key; `None` if `text` is not exactly one.
pub fn decode(text: &str) -> Option<[u8; KEY_LEN]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_key_is_refused() {
        let key = [7; KEY_LEN];
        assert_eq!(decode(&encode(&key)), Some(key));
        let short = STANDARD.encode([1; 31]);
        for bad in ["", "key", "AAAA", &short, &"A".repeat(44), &"!".repeat(44), &format!(" {}", encode(&key))] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
