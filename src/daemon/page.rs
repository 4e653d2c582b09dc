//! The layout of sentences: elapsed time, name, text, quoted words. On a terminal the text is broken to its width and
//! coloured; in a pipe each sentence is one plain line. Repeats are folded: what an agent does again and again is one sentence
//! with a count. No control character of an event reaches the output: agents' words must not control the terminal.

use std::collections::BTreeMap;
use std::time::Duration;

use ghost_domain::Timestamp;
use ghost_domain::text::clip;

use crate::narration::{Sentence, Tone};

/// Maximum number of characters of a line with quoted words, in a pipe.
const WORDS_MAX: usize = 300;
/// Maximum number of characters of other lines, in a pipe.
const PLAIN_MAX: usize = 200;
/// The same for warnings and errors; their end says what to do.
const BAD_MAX: usize = 600;
/// Number of columns for a name. A longer name moves the rest to the right.
const NAME: usize = 10;
/// Minimum number of columns of a text that is broken into lines.
const NARROW: usize = 24;

/// The style of the output.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Whether to use colours.
    pub colour: bool,
    /// Returns the current width in columns. `None` for an output that is no terminal.
    pub width: Option<fn() -> Option<usize>>,
    /// Whether to show agents' reads and the final texts of turns, too.
    pub verbose: bool,
}

impl Style {
    /// `text` in the ANSI colour `code`, if the style has colours.
    pub(crate) fn paint(&self, code: &str, text: &str) -> String {
        if self.colour && !code.is_empty() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// A sentence as text. It has several lines if it is too long for the terminal.
    pub(crate) fn lay_out(&self, sentence: &Sentence, begun: Timestamp) -> String {
        let time = format!("{:>7}", elapsed(sentence.at.since(begun)));
        let who = plain(&sentence.who);
        let pad = NAME.saturating_sub(columns(&who));
        let head = format!("{}  {}{} ", self.paint("2", &time), self.paint(hue(&who), &who), " ".repeat(pad));
        let before = 7 + 2 + columns(&who) + pad + 1;
        let body = match &sentence.words {
            Some(words) => format!("{} “{}”", sentence.what, clip(&plain(words), 4 * WORDS_MAX)),
            None => sentence.what.clone(),
        };
        let body = plain(&body);
        let lines = match self.width.and_then(|width| width()) {
            Some(width) => {
                let limit = match sentence.tone {
                    Tone::Speech => 3,
                    Tone::Bad | Tone::Warning => 8,
                    Tone::Plain | Tone::Quiet => 1,
                };
                break_lines(&body, width.saturating_sub(before).max(NARROW), limit)
            }
            None => {
                let limit = match sentence.tone {
                    Tone::Speech => WORDS_MAX,
                    Tone::Bad | Tone::Warning => BAD_MAX,
                    Tone::Plain | Tone::Quiet => PLAIN_MAX,
                };
                vec![clip(&body, limit)]
            }
        };
        let colour = match sentence.tone {
            Tone::Plain | Tone::Speech => "",
            Tone::Quiet => "2",
            Tone::Warning => "33",
            Tone::Bad => "31",
        };
        let lines: Vec<String> = lines.iter().map(|line| self.paint(colour, line)).collect();
        format!("{head}{}", lines.join(&format!("\n{}", " ".repeat(before))))
    }
}

/// The colour of a name. The same name always has the same colour.
fn hue(name: &str) -> &'static str {
    const HUES: [&str; 6] = ["36", "32", "35", "34", "33", "96"];
    let sum = name.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    HUES[sum % HUES.len()]
}

/// The text with spaces for control characters.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A duration as text: `4.2s`, `12m03s`, `3h04m`.
fn elapsed(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..100 => format!("{:.1}s", time.as_secs_f64()),
        100..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
    }
}

/// Number of columns of a text. East Asian characters and emoji take two.
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

/// Breaks a text into at most `limit` lines of `width` columns, between words if possible. Text
/// that does not fit is truncated and `…` added.
fn break_lines(text: &str, width: usize, limit: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let last = lines.len() + 1 == limit;
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
        // If the last space is in the first half of the line, the word is broken.
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

/// How long repeats are only counted.
const HELD_MAX: Duration = Duration::from_secs(10);
/// Maximum number of agents and people whose last sentence is remembered.
const REMEMBERED: usize = 4_096;

/// The last sentence of each agent and person, and how often it was repeated since it was printed.
#[derive(Debug, Default)]
pub(crate) struct Folds {
    last: BTreeMap<String, Last>,
}

#[derive(Debug)]
struct Last {
    sentence: Sentence,
    /// When it was printed, or its count was.
    printed: Timestamp,
    /// Repeats that were not printed.
    held: u32,
}

impl Last {
    /// The sentence with the count of the repeats that were held back, if there are any.
    fn counted(&mut self) -> Option<Sentence> {
        let held = std::mem::take(&mut self.held);
        let times = if held == 1 { "once more".to_owned() } else { format!("{held} more times") };
        self.printed = self.sentence.at;
        let what = format!("{} ({times})", self.sentence.what);
        (held > 0).then(|| Sentence { what, ..self.sentence.clone() })
    }
}

impl Folds {
    /// The sentences to print now that `sentence` has come. A repeat is held back for some seconds.
    pub(crate) fn take(&mut self, sentence: Sentence) -> Vec<Sentence> {
        let mut out = self.due(sentence.at);
        let is_same = |last: &Last| (&last.sentence.what, &last.sentence.words) == (&sentence.what, &sentence.words);
        if let Some(last) = self.last.get_mut(&sentence.who).filter(|last| is_same(last)) {
            last.sentence.at = sentence.at;
            last.held = last.held.saturating_add(1);
            return out;
        }
        if self.last.len() >= REMEMBERED {
            out.extend(self.rest());
            self.last.clear();
        }
        let last = Last { printed: sentence.at, held: 0, sentence: sentence.clone() };
        let before = self.last.insert(sentence.who.clone(), last);
        out.extend(before.and_then(|mut before| before.counted()));
        out.push(sentence);
        out
    }

    /// The counts that have been held back for long enough.
    pub(crate) fn due(&mut self, now: Timestamp) -> Vec<Sentence> {
        let due = self.last.values_mut().filter(|last| last.held > 0 && now.since(last.printed) >= HELD_MAX);
        due.filter_map(Last::counted).collect()
    }

    /// All counts that are held back: something else is printed now.
    pub(crate) fn rest(&mut self) -> Vec<Sentence> {
        self.last.values_mut().filter_map(Last::counted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::narration::Tone;

    fn sentence(tone: Tone, what: &str, words: Option<&str>) -> Sentence {
        let words = words.map(str::to_owned);
        Sentence { at: Timestamp(64_200), who: "ann".into(), what: what.into(), words, tone }
    }

    #[test]
    fn a_sentence_in_a_pipe_is_one_line_without_colours() {
        let style = Style::default();
        let line = style.lay_out(&sentence(Tone::Speech, "in #desk:", Some("I \u{1b}[31mcount.")), Timestamp(60_000));
        assert_eq!(line, "   4.2s  ann        in #desk: “I  [31mcount.”");
        let long = style.lay_out(&sentence(Tone::Speech, "in #desk:", Some(&"word ".repeat(300))), Timestamp(0));
        assert!(!long.contains('\n') && long.ends_with('…') && long.chars().count() < 340, "{long}");
    }

    #[test]
    fn a_sentence_on_a_terminal_fits_its_width_and_has_colours() {
        let style = Style { colour: true, width: Some(|| Some(60)), verbose: false };
        let text = style.lay_out(&sentence(Tone::Speech, "in #desk:", Some(&"word ".repeat(300))), Timestamp(0));
        let bare = text.replace("\u{1b}[2m", "").replace("\u{1b}[0m", "");
        let bare = ["36", "32", "35", "34", "33", "96"]
            .iter()
            .fold(bare, |text, hue| text.replace(&format!("\u{1b}[{hue}m"), ""));
        assert_eq!(bare.lines().count(), 3);
        assert!(bare.lines().all(|line| columns(line) <= 60) && bare.ends_with('…'), "{bare}");
        assert!(text.contains("\u{1b}["));
        let bad = style.lay_out(&sentence(Tone::Bad, "failed: so", None), Timestamp(0));
        assert!(bad.ends_with("\u{1b}[31mfailed: so\u{1b}[0m"), "{bad:?}");
    }

    #[test]
    fn durations_and_wide_characters_are_measured() {
        let of = |seconds: f64| elapsed(Duration::from_secs_f64(seconds));
        assert_eq!([of(0.04), of(99.94), of(723.0), of(11_040.0)], ["0.0s", "99.9s", "12m03s", "3h04m"]);
        assert_eq!((columns("aé"), columns("日本"), columns("e\u{301}")), (2, 4, 1));
        assert_eq!(break_lines("日本日本日本", 5, 2), ["日本", "日本…"]);
        assert_eq!(break_lines("", 5, 2), Vec::<String>::new());
        assert_eq!(break_lines("aaaaaaaaaa", 4, 9), ["aaaa", "aaaa", "aa"]);
    }

    fn says(seconds: i64, who: &str, what: &str) -> Sentence {
        Sentence { at: Timestamp(seconds * 1_000), who: who.into(), what: what.into(), words: None, tone: Tone::Plain }
    }

    fn what(sentences: &[Sentence]) -> Vec<String> {
        sentences.iter().map(|sentence| format!("{} {}", sentence.who, sentence.what)).collect()
    }

    #[test]
    fn repeats_are_one_sentence_with_a_count() {
        let mut folds = Folds::default();
        let mut out = folds.take(says(0, "ann", "writes a.md"));
        // Another agent's work between them does not matter.
        out.extend(folds.take(says(0, "bob", "writes b.md")));
        for _ in 0..33 {
            out.extend(folds.take(says(1, "ann", "writes a.md")));
        }
        out.extend(folds.take(says(2, "ann", "writes c.md")));
        let wanted = ["ann writes a.md", "bob writes b.md", "ann writes a.md (33 more times)", "ann writes c.md"];
        assert_eq!(what(&out), wanted);
        assert!(folds.rest().is_empty());
    }

    #[test]
    fn a_count_is_given_out_after_some_seconds_and_at_the_end() {
        let mut folds = Folds::default();
        folds.take(says(0, "ann", "writes a.md"));
        assert!(folds.take(says(3, "ann", "writes a.md")).is_empty());
        assert!(folds.due(Timestamp(9_000)).is_empty());
        assert_eq!(what(&folds.due(Timestamp(10_000))), ["ann writes a.md (once more)"]);
        assert!(folds.due(Timestamp(60_000)).is_empty(), "nothing was held back since");
        folds.take(says(61, "ann", "writes a.md"));
        assert_eq!(what(&folds.rest()), ["ann writes a.md (once more)"]);
        assert!(folds.rest().is_empty());
    }
}
