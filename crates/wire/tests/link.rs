//! Frames of the link protocol round-trip, and any other input is an error or a frame, never a
//! panic.

use bytes::Bytes;
use proptest::prelude::*;
use remora_wire::link::{
    Ack, Announcement, BITMAP_MAX, CONTEXTS_MAX, Data, Frame, FrameNumbers, HandOff, Headers, Part, Rts, WINDOW_MAX,
};

fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

fn ack() -> impl Strategy<Value = Ack> {
    (any::<[u16; 3]>(), bytes(BITMAP_MAX + 1)).prop_map(|([epoch, next, echo], bitmap)| Ack {
        epoch,
        next,
        echo,
        bitmap,
    })
}

fn place() -> impl Strategy<Value = FrameNumbers> {
    let full = (any::<[u16; 3]>(), 0..WINDOW_MAX as u16);
    prop_oneof![
        full.prop_map(|([epoch, seq, stamp], back)| FrameNumbers::Full { epoch, seq, stamp, back }),
        any::<[u8; 2]>().prop_map(|[seq, stamp]| FrameNumbers::Short { seq, stamp }),
    ]
}

fn headers() -> impl Strategy<Value = Headers> {
    prop_oneof![
        Just(Headers::Full),
        (0..CONTEXTS_MAX).prop_map(Headers::Offered),
        (0..CONTEXTS_MAX).prop_map(Headers::Brief)
    ]
}

fn data() -> impl Strategy<Value = Data> {
    let part = (0..16u8, 0..16u8).prop_filter_map("no such chunk", |(index, last)| Part::new(index, last));
    let options = (proptest::option::of(ack()), proptest::option::of(bytes(1500)));
    (place(), 0..WINDOW_MAX as u16, any::<bool>(), options, part, headers()).prop_map(
        |(place, prev, poll, (ack, packet), part, headers)| Data {
            place,
            prev: if part.index() == 0 { prev } else { 1 },
            poll,
            ack,
            headers: if part.index() == 0 && packet.is_some() { headers } else { Headers::Full },
            packet,
            part,
        },
    )
}

fn frame() -> impl Strategy<Value = Frame> {
    let name = any::<[u16; 2]>().prop_map(|[epoch, id]| Announcement { epoch, id });
    let signal = (name.clone(), any::<Option<u32>>())
        .prop_map(|(announcement, expected_ms)| Frame::HandOff(HandOff { announcement, expected_ms }));
    prop_oneof![
        4 => data().prop_map(Frame::Data),
        2 => ack().prop_map(Frame::Ack),
        1 => ack().prop_map(Frame::Cts),
        1 => any::<[u16; 3]>().prop_map(|[epoch, floor, stamp]| Frame::Rts(Rts { epoch, floor, stamp })),
        1 => bytes(1500).prop_map(Frame::Plain),
        1 => signal,
        1 => name.prop_map(Frame::HandOffAck),
    ]
}

/// Whether the frame ends with bytes of any number.
fn is_open_ended(frame: &Frame) -> bool {
    matches!(frame, Frame::Plain(_) | Frame::Data(Data { packet: Some(_), .. }))
}

proptest! {
    #[test]
    fn any_frame_round_trips(frame in frame()) {
        let bytes = frame.to_bytes();
        if let Frame::Data(data) = &frame {
            prop_assert_eq!(bytes.len(), data.header_len() + data.packet.as_ref().map_or(0, Bytes::len));
        }
        prop_assert_eq!(Frame::decode(bytes), Ok(frame));
    }

    #[test]
    fn truncated_or_extended_frame_is_refused(frame in frame(), more in any::<u8>()) {
        prop_assume!(!is_open_ended(&frame));
        let whole = frame.to_bytes();
        for len in 0..whole.len() {
            prop_assert!(Frame::decode(whole.slice(..len)).is_err(), "cut to {} bytes", len);
        }
        prop_assert!(Frame::decode([&whole[..], &[more]].concat().into()).is_err());
    }

    #[test]
    fn random_bytes_are_refused_or_decoded(noise in bytes(200)) {
        if let Ok(frame) = Frame::decode(noise) {
            prop_assert_eq!(Frame::decode(frame.to_bytes()), Ok(frame));
        }
    }
}
