//! Reading text in encodings other than UTF-8, and refusing to change it.

use super::tests::{all_lines, new_workspace, path};
use super::*;

#[tokio::test]
async fn text_in_other_encodings_is_read_and_not_changed_in_place() {
    let (_dir, workspace) = new_workspace();
    let latin = path("projects/latin.txt");
    workspace.write_atomic(&latin, b"eins\nGr\xf6\xdfe 3\nM\xfcll").await.unwrap();
    let line = Lines { first: 2, skip: 6, count: None, max_bytes: 100 };
    // Bytes to skip count in the UTF-8 text that was shown.
    let text = workspace.read_text(&latin, line).await.unwrap();
    assert_eq!((text.content.as_str(), text.encoding, text.bytes), ("e 3\nM\u{fc}ll", Encoding::Windows1252, 17));
    let refusal = workspace.read_text(&latin, Lines { skip: 5, ..line }).await.unwrap_err();
    assert_eq!(refusal.code, Code::InvalidArguments, "{refusal}");
    let text = workspace.read_text(&latin, Lines { skip: 0, max_bytes: 3, ..line }).await.unwrap();
    assert_eq!((text.content.as_str(), text.truncated), ("Gr", true), "cut at a character");
    let refusal = workspace.text_for_change(&latin, 100).await.unwrap_err();
    assert!(refusal.code == Code::InvalidArguments && refusal.message.contains("windows-1252"), "{refusal}");

    let wide = path("projects/wide.txt");
    let bytes: Vec<u8> = "\u{feff}eins\nzwei \u{20ac}\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    workspace.write_atomic(&wide, &bytes).await.unwrap();
    let text = workspace.read_text(&wide, all_lines(100)).await.unwrap();
    assert_eq!((text.content.as_str(), text.encoding, text.lines), ("eins\nzwei \u{20ac}\n", Encoding::Utf16Le, 2));
    assert!(!text.truncated);
    let refusal = workspace.text_for_change(&wide, 100).await.unwrap_err();
    assert!(refusal.message.contains("utf-16le"), "{refusal}");
    assert_eq!(workspace.read(&wide, 100).await.unwrap(), bytes, "nothing has changed it");
}
