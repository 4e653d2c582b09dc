//! How a sentence stands on the page: elapsed time, who, what, and the words that were said; fitted to the width of a terminal
//! and coloured if someone looks at it, and one plain line each in a pipe.
//!
//! Must never: let a control character through. What agents say must not drive the terminal.

use std::time::Duration;

use ghost_domain::Timestamp;
use ghost_domain::text::clip;

use crate::narration::{Told, Tone};

/// Characters of what was said in a line of a pipe, which has no width.
const WORDS_MAX: usize = 300;
/// Characters of everything else there; the end of a failure says what to do.
const PLAIN_MAX: usize = 200;
const BAD_MAX: usize = 600;
/// Columns of a name: longer ones push the rest to the right.
const NAME: usize = 10;
/// The narrowest text that is still broken into lines.
const NARROW: usize = 24;

/// How a terminal shows what it is told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Whether it has colours.
    pub colour: bool,
    /// How wide it is now; nothing for what is no terminal.
    pub width: Option<fn() -> Option<usize>>,
    /// Whether everything is shown that agents look at.
    pub verbose: bool,
}

impl Style {
    /// `text` in a colour, if there are any.
    pub(crate) fn paint(&self, code: &str, text: &str) -> String {
        if self.colour && !code.is_empty() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// A sentence, on one line or, if words are long and the terminal narrow, on several.
    pub(crate) fn lay_out(&self, told: &Told, begun: Timestamp) -> String {
        let time = format!("{:>7}", elapsed(told.at.since(begun)));
        let who = plain(&told.who);
        let pad = NAME.saturating_sub(columns(&who));
        let head = format!("{}  {}{} ", self.paint("2", &time), self.paint(hue(&who), &who), " ".repeat(pad));
        let before = 7 + 2 + columns(&who) + pad + 1;
        let body = match &told.words {
            Some(words) => format!("{} “{}”", told.what, clip(&plain(words), 4 * WORDS_MAX)),
            None => told.what.clone(),
        };
        let body = plain(&body);
        let lines = match self.width.and_then(|width| width()) {
            Some(width) => {
                let most = match told.tone {
                    Tone::Said => 3,
                    Tone::Bad | Tone::Warning => 8,
                    Tone::Plain | Tone::Quiet => 1,
                };
                broken(&body, width.saturating_sub(before).max(NARROW), most)
            }
            None => {
                let most = match told.tone {
                    Tone::Said => WORDS_MAX,
                    Tone::Bad | Tone::Warning => BAD_MAX,
                    Tone::Plain | Tone::Quiet => PLAIN_MAX,
                };
                vec![clip(&body, most)]
            }
        };
        let colour = match told.tone {
            Tone::Plain | Tone::Said => "",
            Tone::Quiet => "2",
            Tone::Warning => "33",
            Tone::Bad => "31",
        };
        let lines: Vec<String> = lines.iter().map(|line| self.paint(colour, line)).collect();
        format!("{head}{}", lines.join(&format!("\n{}", " ".repeat(before))))
    }
}

/// The colour of a name, the same at every time.
fn hue(name: &str) -> &'static str {
    const HUES: [&str; 6] = ["36", "32", "35", "34", "33", "96"];
    let sum = name.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    HUES[sum % HUES.len()]
}

/// A text without control characters.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// How long something has taken: `4.2s`, `12m03s`, `3h04m`.
fn elapsed(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..100 => format!("{:.1}s", time.as_secs_f64()),
        100..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
    }
}

/// Columns that a text takes: those of East Asian scripts and of pictures take two.
fn columns(text: &str) -> usize {
    text.chars().map(width_of).sum()
}

fn width_of(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036F | 0x200B..=0x200F | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F | 0x2E80..=0xA4CF | 0xAC00..=0xD7A3 | 0xF900..=0xFAFF | 0xFE30..=0xFE6F | 0xFF00..=0xFF60 => 2,
        0x1F300..=0x1FAFF | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

/// A text on at most `most` lines of `width` columns, broken between words where there are any; the rest is cut off, and the cut
/// marked.
fn broken(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let last = lines.len() + 1 == most;
        if columns(rest) <= width {
            lines.push(rest.to_owned());
            break;
        }
        let room = if last { width.saturating_sub(1) } else { width };
        let (mut used, mut end, mut space) = (0, rest.len(), None);
        for (at, c) in rest.char_indices() {
            if used + width_of(c) > room {
                end = at;
                break;
            }
            used += width_of(c);
            if c == ' ' {
                space = Some(at);
            }
        }
        // A word that is longer than half a line is broken.
        let cut = space.filter(|at| *at > end / 2).unwrap_or(end).max(1);
        let cut = (cut..=rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        if last {
            lines.push(format!("{}…", rest[..cut].trim_end()));
            break;
        }
        lines.push(rest[..cut].trim_end().to_owned());
        rest = rest[cut..].trim_start();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(tone: Tone, what: &str, words: Option<&str>) -> Told {
        let words = words.map(str::to_owned);
        Told { at: Timestamp(64_200), who: "ann".into(), what: what.into(), words, tone }
    }

    #[test]
    fn in_a_pipe_a_sentence_is_one_line_without_colours() {
        let style = Style::default();
        let line = style.lay_out(&told(Tone::Said, "in #desk:", Some("I \u{1b}[31mcount.")), Timestamp(60_000));
        assert_eq!(line, "   4.2s  ann        in #desk: “I  [31mcount.”");
        let long = style.lay_out(&told(Tone::Said, "in #desk:", Some(&"word ".repeat(300))), Timestamp(0));
        assert!(!long.contains('\n') && long.ends_with('…') && long.chars().count() < 340, "{long}");
    }

    #[test]
    fn on_a_terminal_it_fits_the_width_and_has_colours() {
        let style = Style { colour: true, width: Some(|| Some(60)), verbose: false };
        let text = style.lay_out(&told(Tone::Said, "in #desk:", Some(&"word ".repeat(300))), Timestamp(0));
        let bare = text.replace("\u{1b}[2m", "").replace("\u{1b}[0m", "");
        let bare = ["36", "32", "35", "34", "33", "96"]
            .iter()
            .fold(bare, |text, hue| text.replace(&format!("\u{1b}[{hue}m"), ""));
        assert_eq!(bare.lines().count(), 3);
        assert!(bare.lines().all(|line| columns(line) <= 60) && bare.ends_with('…'), "{bare}");
        assert!(text.contains("\u{1b}["));
        let bad = style.lay_out(&told(Tone::Bad, "failed: so", None), Timestamp(0));
        assert!(bad.ends_with("\u{1b}[31mfailed: so\u{1b}[0m"), "{bad:?}");
    }

    #[test]
    fn times_and_wide_letters() {
        let of = |seconds: f64| elapsed(Duration::from_secs_f64(seconds));
        assert_eq!([of(0.04), of(99.94), of(723.0), of(11_040.0)], ["0.0s", "99.9s", "12m03s", "3h04m"]);
        assert_eq!((columns("aé"), columns("日本"), columns("e\u{301}")), (2, 4, 1));
        assert_eq!(broken("日本日本日本", 5, 2), ["日本", "日本…"]);
        assert_eq!(broken("", 5, 2), Vec::<String>::new());
        assert_eq!(broken("aaaaaaaaaa", 4, 9), ["aaaa", "aaaa", "aa"]);
    }
}
