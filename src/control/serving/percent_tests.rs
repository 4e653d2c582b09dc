//! The bytes that gRPC's C core sends, and what the filter makes of them.

use proptest::prelude::*;
use tokio::io::AsyncReadExt as _;

use super::*;

/// A field as the C core encodes it: literal with indexing, name and value not Huffman-coded unless
/// `huffman`.
fn literal(name: &str, value: &[u8], huffman: bool) -> Vec<u8> {
    let mut field = vec![0x40, u8::try_from(name.len()).unwrap()];
    field.extend(name.as_bytes());
    field.push(u8::try_from(value.len()).unwrap() | if huffman { 0x80 } else { 0 });
    field.extend(value);
    field
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

/// A whole request: SETTINGS, the header block, DATA.
fn request(block: &[u8]) -> Vec<u8> {
    [PREFACE, &frame(4, 0, &[]), &frame(HEADERS, 0x4, block), &frame(0, 1, b"%2F is data")].concat()
}

/// The filter's output when the bytes arrive in pieces of this size.
async fn filtered(sent: &[u8], piece: usize) -> Vec<u8> {
    let (near, mut far) = tokio::io::duplex(piece);
    let bytes = sent.to_vec();
    tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut far, &bytes).await });
    let mut read = Vec::new();
    PercentFilter::new(near).read_to_end(&mut read).await.unwrap();
    read
}

#[tokio::test]
async fn percent_signs_in_the_authority_are_replaced_and_nothing_else_changes() {
    let path = literal(":path", b"/a%2Fb", false);
    for (name, value, huffman, expected_value) in [
        (":authority", &b"%2Ftmp%2Fg.sock"[..], false, &b"-2Ftmp-2Fg.sock"[..]),
        (":authority", b"localhost", false, b"localhost"),
        ("x-authority", b"%2F", false, b"%2F"),
        // `%2` and `-2`, Huffman-coded: 010101 00010, 010110 00010, padded with ones.
        (":authority", &[0b0101_0100, 0b0101_1111], true, &[0b0101_1000, 0b0101_1111]),
    ] {
        let block = |value| [path.clone(), literal(name, value, huffman)].concat();
        let (sent, expected) = (request(&block(value)), request(&block(expected_value)));
        for piece in [1, 7, 100_000] {
            assert_eq!(filtered(&sent, piece).await, expected, "{name} in pieces of {piece}");
        }
    }
}

#[tokio::test]
async fn every_request_and_every_form_of_the_field_is_examined() {
    let block = literal(":authority", b"%2Fa", false);
    // The name from the static table; without indexing; with padding and priority before the block.
    let padded = [&[2, 0, 0, 0, 0, 16][..], &[0x01, 4], b"%2Fa", &[0, 0]].concat();
    let sent = [request(&block), frame(HEADERS, 0x4, &block), frame(HEADERS, 0x2c, &padded)].concat();
    let read = filtered(&sent, 64).await;
    let signs = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'%').count();
    assert_eq!((signs(&sent), signs(&read), read.len()), (4, 1, sent.len()), "the data alone keeps its sign");
}

#[tokio::test]
async fn a_connection_without_such_an_authority_is_passed_on() {
    let plain = request(&literal(":authority", b"localhost", false));
    let later = frame(HEADERS, 0x4, &literal(":authority", b"%2F", false));
    let sent = [plain, later].concat();
    assert_eq!(filtered(&sent, 64).await, sent, "later requests are not examined");
    for cut in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &PREFACE[..10]] {
        assert_eq!(filtered(cut, 5).await, cut);
    }
}

#[tokio::test]
async fn an_authority_is_found_wherever_its_block_is_split_into_frames() {
    let block = |value| [literal(":path", b"/a%2Fb", false), literal(":authority", value, false)].concat();
    // With padding and priority in the first frame, which are not part of the block.
    let split = |block: &[u8], at: usize, then: usize| {
        let begin = [&[3, 0, 0, 0, 0, 16], &block[..at], b"%%%"].concat();
        let frames = [frame(HEADERS, 0x28, &begin), frame(CONTINUATION, 0, &block[at..then])].concat();
        let end = [frame(CONTINUATION, END_HEADERS, &block[then..]), frame(0, 1, b"%2F is data")].concat();
        [PREFACE, &frames, &end].concat()
    };
    let (sent, expected_value) = (block(b"%2Ftmp%2Fg"), block(b"-2Ftmp-2Fg"));
    for at in 0..=sent.len() {
        let then = at + (sent.len() - at) / 2;
        assert_eq!(
            filtered(&split(&sent, at, then), 7).await,
            split(&expected_value, at, then),
            "split at {at} and {then}"
        );
    }
    // A block that is interrupted by another frame or larger than h2 accepts is passed on unchanged.
    let broken = [PREFACE, &frame(HEADERS, 0, &sent[..9]), &frame(0, 0, b"%2F"), &frame(CONTINUATION, 4, &sent[9..])];
    assert_eq!(filtered(&broken.concat(), 7).await, broken.concat());
    let endless = [PREFACE, &frame(HEADERS, 0, &sent), &frame(CONTINUATION, 0, &[0; 9_000]).repeat(9)].concat();
    assert_eq!(filtered(&endless, 4_096).await.len(), endless.len());
}

proptest! {
    #[test]
    fn no_block_makes_it_panic_or_changes_a_length(mut bytes in prop::collection::vec(any::<u8>(), 0..80), cut in 0_usize..90) {
        let before = bytes.clone();
        let changed = replace_percent(&mut bytes, &[0..cut, cut..80]);
        prop_assert_eq!(before.len(), bytes.len());
        prop_assert_eq!(before != bytes, changed);
    }

    #[test]
    fn no_frames_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Some((parts, end)) = fragments(&bytes) {
            prop_assert!(parts.iter().all(|part| part.end <= end) && end <= bytes.len());
        }
    }
}
