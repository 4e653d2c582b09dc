//! Text of a server that goes into an error, a list or a log. It must never be long or hide control characters.

/// Bytes of a text of a server that an error shows.
pub(crate) const SHOWN_MAX: usize = 500;

/// The first `max` bytes of `text`, on a character boundary.
pub(crate) fn start(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// `text` on one line and without control characters, at most [`SHOWN_MAX`] bytes of it.
pub(crate) fn shown(text: &str) -> String {
    let part = start(text, SHOWN_MAX);
    let mut shown: String = part.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect();
    if part.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// Whether a character changes how others are shown, or shows nothing.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_text_is_short_and_has_no_control_characters() {
        assert_eq!(shown("a\nb\u{1b}[2Jc\u{202e}"), "a b [2Jc ");
        let long = "ä".repeat(SHOWN_MAX);
        assert!(shown(&long).len() <= SHOWN_MAX + '…'.len_utf8());
        assert!(shown(&long).ends_with('…'));
    }
}
