//! Values as text, and text of agents made safe for a terminal.

pub use ghost_proto::json::rfc3339;

/// Formats money as `$1.2345`: at least two decimals, then up to the last digit that is not zero.
/// Prints the same as the daemon.
pub fn dollars(micros: u64) -> String {
    let whole = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let kept = whole.trim_end_matches('0').len().max(whole.len() - 4);
    format!("${}", &whole[..kept])
}

/// A count with its noun: `1 agent`, `2 agents`.
pub fn plural(count: impl Into<u64>, noun: &str) -> String {
    let count = count.into();
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The cost as text. Tokens of models without a known price are listed separately.
pub fn cost(micros: u64, unpriced_tokens: u64) -> String {
    match (micros, unpriced_tokens) {
        (known, 0) => dollars(known),
        (0, tokens) => format!("unknown ({tokens} tokens without a price)"),
        (known, tokens) => format!("{} + {tokens} tokens without a price", dollars(known)),
    }
}

/// Whether a character changes the direction in which a terminal shows the text around it.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with direction characters escaped, as `\u{202e}`.
fn escape_bidi(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if is_bidi(c) { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    plain
}

/// Whether a character would end the line, or control the terminal.
fn breaks_line(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// The text as one line of at most `max` characters. Control characters and line breaks become
/// spaces, direction characters are escaped, and `…` marks a truncation.
pub fn one_line(text: &str, max: usize) -> String {
    let text = escape_bidi(text);
    let mut line: String =
        text.chars().map(|c| if breaks_line(c) { ' ' } else { c }).take(max.saturating_add(1)).collect();
    if line.chars().count() > max {
        line = line.chars().take(max.saturating_sub(1)).collect();
        line.push('…');
    }
    line
}

/// Text from an agent, a model or a server for whoever reads it. Control characters, which could move a terminal's cursor or
/// rename its window, and direction characters are escaped, as `\u{1b}`. A line may end in CR LF.
pub fn harmless(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\r' if rest.peek() == Some(&'\n') => {}
            '\n' | '\t' => plain.push(c),
            c if c.is_control() || is_bidi(c) => plain.extend(c.escape_default()),
            c => plain.push(c),
        }
    }
    plain
}

/// JSON whose strings hold no character that a terminal takes for a command: serde leaves those above U+007E as they are.
pub fn escaped_json(json: &str) -> String {
    let mut plain = String::with_capacity(json.len());
    for c in json.chars() {
        let steers = is_bidi(c) || (c.is_control() && !matches!(c, '\n' | '\t' | '\r'));
        // Each of them is one unit of UTF-16. Outside a string no such character may stand.
        if steers {
            plain.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            plain.push(c);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direction_characters_are_escaped() {
        assert_eq!(one_line("a\u{202e}b\nc", 40), "a\\u{202e}b c");
        assert_eq!(harmless("\u{2066}x\u{1b}[2J\n"), "\\u{2066}x\\u{1b}[2J\n");
    }

    #[test]
    fn money_and_instants_have_the_daemons_format() {
        for micros in [0, 1, 7, 10, 990_000, 1_000_000, 1_234_500, 1_234_567, 20_000_000, u64::MAX] {
            assert_eq!(dollars(micros), ghost_domain::Money(micros).to_string());
        }
        for ms in [0, 1, -1, 951_782_400_000, 1_709_164_800_123, 4_107_542_399_999, -62_135_596_800_000] {
            assert_eq!(rfc3339(ms), ghost_domain::Timestamp(ms).rfc3339());
        }
    }

    #[test]
    fn text_of_agents_cannot_control_a_terminal() {
        assert_eq!(one_line("a\nb\u{1b}[31mc", 20), "a b [31mc");
        assert_eq!(one_line("abcdef", 4), "abc…");
        assert_eq!(one_line("äöüß", 4), "äöüß");
        assert_eq!(harmless("a\u{1b}]0;x\u{7}\n\tb\r\nc\rd"), "a\\u{1b}]0;x\\u{7}\n\tb\nc\\rd");
    }
}
