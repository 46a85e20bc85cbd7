//! Frames as bytes: sizes, what comes back, what is refused.

use super::data::{CONTEXT, PART, SHORT, VOID, WIDE};
use super::*;

#[test]
fn headers_are_as_small_as_the_slow_hop_asks_for() {
    let ack = Ack { epoch: 1, next: 2, echo: 3, bitmap: Bytes::new() };
    let of_four = |index| Part::new(index, 3).unwrap();
    let place = Place::Full { epoch: 1, seq: 9, stamp: 9, back: 3 };
    let headers = Headers::Full;
    let data = Data { place, prev: 1, poll: true, ack: None, packet: None, part: Part::WHOLE, headers };
    let named = |headers| Data { packet: Some(Bytes::new()), headers, ..data.clone() };
    let (brief, offered) = (named(Headers::Brief(127)), named(Headers::Offered(0)));
    let chunk = Data { part: of_four(2), ..data.clone() };
    let wide = Data { prev: 300, part: of_four(0), ..data.clone() };
    let short = Data { place: Place::Short { seq: 9, stamp: 9 }, ..data.clone() };
    let short_chunk = Data { part: of_four(2), ..short.clone() };
    let both = Data { ack: Some(ack.clone()), ..data.clone() };
    for (frame, len) in [
        (Frame::Data(data), 9),
        (Frame::Data(brief), 10),
        (Frame::Data(offered), 10),
        (Frame::Data(chunk), 9),
        (Frame::Data(short), 4),
        (Frame::Data(short_chunk), 4),
        (Frame::Data(wide), DATA_HEADER_MAX),
        (Frame::Data(both), 9 + ACK_MIN),
        (Frame::Ack(ack), 8),
        (Frame::Rts(Rts { epoch: 1, floor: 2, stamp: 3 }), 7),
    ] {
        assert_eq!(frame.to_bytes().len(), len, "{frame:?}");
        if let Frame::Data(data) = &frame {
            assert_eq!(data.header_len(), len);
        }
        assert_eq!(Frame::decode(frame.to_bytes()), Ok(frame));
    }
}

#[test]
fn frames_that_lie_are_errors() {
    let cases: &[(&[u8], FrameError)] = &[
        (&[], FrameError::Short),
        (&[0], FrameError::Kind(0)),
        (&[0x08], FrameError::Kind(8)),
        (&[DATA | CONTEXT, 0, 0, 0, 0, 0, 0, 0, 0], FrameError::Short),
        (&[DATA | CONTEXT | VOID, 0, 0, 0, 0, 0, 0, 0, 0, 0], FrameError::Range),
        (&[DATA | CONTEXT | PART, 0, 0, 0, 0, 0, 0, 0, 0x11, 0], FrameError::Range),
        (&[DATA, 0, 0, 0, 0, 0, 0, 0], FrameError::Short),
        (&[DATA | WIDE, 0, 0, 0, 0, 0, 0, 0, 0, 0x07, 0xf8], FrameError::Range),
        (&[DATA | WIDE, 0, 0, 0, 0, 0, 0, 0x07, 0xf8, 0, 1], FrameError::Range),
        (&[DATA | PART, 0, 0, 0, 0, 0, 0, 0, 0, 0x00], FrameError::Range),
        (&[DATA | PART, 0, 0, 0, 0, 0, 0, 0, 0x32, 0], FrameError::Range),
        (&[DATA | SHORT, 0, 0], FrameError::Short),
        (&[DATA | VOID, 0, 0, 0, 0, 0, 0, 0, 0, 7], FrameError::Trailing),
        (&[ACK, 0, 0, 0, 0, 0, 0, 2, 1], FrameError::Short),
        (&[ACK, 0, 0, 0, 0, 0, 0, 0, 1], FrameError::Trailing),
        (&[HANDOFF_BEGIN, 0, 0, 0, 0, 0, 0], FrameError::Short),
    ];
    for (bytes, error) in cases {
        assert_eq!(Frame::decode(Bytes::copy_from_slice(bytes)), Err(*error), "{bytes:?}");
    }
}

#[test]
fn numbers_expand_to_the_nearest() {
    let near = 0x5_0000;
    for expected in [near, near + 1, near - 1, near + 0x7fff, near - 0x8000, near + 1024] {
        assert_eq!(expand(near, expected as u16), expected);
    }
    let latest = near - SHORT_AHEAD_MAX - SHORT_LATE_MAX;
    for expected in [near, near + 1, near - 1, near + SHORT_AHEAD_MAX, latest] {
        assert_eq!(expand_byte(near, expected as u8), expected);
    }
}

#[test]
fn a_bitmap_says_what_it_was_made_of() {
    let beyond = [1, 2, 9, 640, WINDOW_MAX];
    let ack = Ack { epoch: 0, next: 0, echo: 0, bitmap: Ack::bitmap(beyond.into_iter().chain([0, WINDOW_MAX + 1])) };
    assert_eq!(ack.beyond().collect::<Vec<_>>(), beyond);
    assert_eq!(ack.bitmap.len(), BITMAP_MAX);
}
