//! Splits prose in English and German into paragraphs, sentences and figures, in words that are in the text. If the end of
//! a sentence is uncertain, the sentence continues: a sentence that is too long can still be read.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

// The patterns are constants that the tests compile. A pattern that did not compile would find
// nothing.
static FIGURE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?:[$€£]\s?)?[+-]?\d+(?:[.,'’]\d+){0,6}(?:\s?(?:%|‰|[°]C|€|(?:percent|per cent|million|billion|thousand|trillion|bn|MW|GW|kW|kWh|MWh|GWh|TWh|km|kg|tonnes|tons|ms|seconds|minutes|hours|days|weeks|months|years|euros|dollars|pounds|Prozent|Tausend|Millionen|Milliarden|Tsd|Mio|Mrd|Euro|EUR|USD|CHF|Tonnen|Sekunden|Minuten|Stunden|Tage|Tagen|Wochen|Monate|Monaten|Jahre|Jahren)\b))?").ok()
});
static NUMBER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\d+(?:[.,'’]\d+){0,6}").ok());
static SENTENCE_END: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r#"[.!?]["'“”’»«)\]]?(?:\s+|$)"#).ok());

/// Bytes of a line that is short enough to be named and read again.
const LINE_MAX: usize = 2_000;

/// Characters that may precede the first letter of a word.
const OPENING: [char; 8] = ['(', '[', '"', '\'', '„', '“', '»', '«'];

/// Abbreviations after which a full stop never ends a sentence.
const SHORT: &str = "Mr Mrs Ms Dr Prof Hr Fr Dipl St approx Approx ca Ca vs cf Cf Mio Mrd Tsd bzw Bzw vgl Vgl inkl exkl zzgl abzgl \
    einschl ggf Ggf evtl Evtl sog bspw Bspw insb insbes resp geb";

/// Abbreviations after which a full stop ends no sentence if a number follows.
const BEFORE_NUMBER: &str = "No Nos Nr Nrn Abs Abb Art Bd Fig Kap Tab Tel Vol Ziff pp max Max min Min Jan Feb Mär Mar Apr Jun Jul Aug \
    Sep Sept Okt Oct Nov Dez Dec";

/// Words that precede an ordinal number in German, which is written with a full stop: "am 3. Mai".
const BEFORE_ORDINAL: &str = "ab am beim bis das dem den der des die dieser diesem diesen ihr ihre ihrem ihren im jede jedem jeden jeder \
    nach sein seine seinem seinen seit und vom vor zum zur zwischen";

/// Words that follow an ordinal number.
const AFTER_ORDINAL: &str = "Januar Jänner Februar März April Mai Juni Juli August September Oktober November Dezember Quartal Halbjahr \
    Jahr Jahrestag Jahrgang Jahrhundert Geburtstag Tag Woche Monat Platz Rang Stock Etage Klasse Kapitel Absatz Auflage Lauf Runde Mal \
    Etappe Sitzung Januars Mais Juls";

fn is_one_of(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|known| known == word)
}

/// Level and title of a markdown heading.
pub(super) fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|b| *b == b'#').count();
    let title = line.get(level..)?;
    (matches!(level, 1..=6) && title.starts_with(' ')).then(|| (level, title.trim().trim_end_matches('#').trim_end()))
}

/// A text without its byte order mark.
pub(super) fn unmarked(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The number and the words of a numbered line, for example `2. Costs`.
fn numbered(line: &str) -> Option<(u32, &str)> {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let words = line.get(digits..)?.strip_prefix(['.', ')'])?;
    let number = line.get(..digits).filter(|number| number.len() <= 3)?.parse().ok()?;
    words.starts_with(' ').then_some((number, words))
}

/// A paragraph or list item as a single line.
pub(super) struct Paragraph {
    pub(super) text: String,
    /// Where each line of the original begins in `text`, with its number from 1; 0 for a line of more than [`LINE_MAX`].
    lines: Vec<(usize, usize)>,
}

impl Paragraph {
    /// The number of the line in which a piece of `text` begins.
    fn line_of(&self, piece: &str) -> usize {
        let at = (piece.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        self.lines.iter().take_while(|(begin, _)| *begin <= at).last().map_or(0, |(_, line)| *line)
    }
}

/// Paragraphs and list items, without headings, fences, rules and table borders.
pub(super) fn prose(text: &str) -> Vec<Paragraph> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let (mut open, mut fenced, mut counted) = (false, false, 0);
    for (at, line) in unmarked(text).lines().enumerate() {
        let number = if line.len() > LINE_MAX { 0 } else { at + 1 };
        let line = line.trim();
        if line.starts_with("```") {
            fenced = !fenced;
            open = false;
            continue;
        }
        let ruled = !line.is_empty() && line.chars().all(|c| matches!(c, '-' | '=' | '|' | ':' | '*' | '_' | ' '));
        if fenced || line.is_empty() || heading(line).is_some() || ruled {
            open = false;
            continue;
        }
        // A line of a paragraph may begin with the day of a date. So a numbered line is a list item
        // only if it is the first of its list or continues the numbers before it.
        let next =
            numbered(line).map(|(number, _)| number).filter(|number| !open || (counted > 0 && *number == counted + 1));
        counted = next.unwrap_or(if open { counted } else { 0 });
        let (item, words) = match line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")) {
            Some(words) => (true, words),
            None => (next.is_some() || line.starts_with('|'), line),
        };
        match paragraphs.last_mut() {
            Some(paragraph) if open && !item => {
                paragraph.text.push(' ');
                paragraph.lines.push((paragraph.text.len(), number));
                paragraph.text.push_str(words);
            }
            _ => paragraphs.push(Paragraph { text: words.to_owned(), lines: vec![(0, number)] }),
        }
        open = !line.starts_with('|');
    }
    paragraphs
}

/// The sentences of a paragraph.
pub(super) fn sentences(paragraph: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    if let Some(end) = SENTENCE_END.as_ref() {
        for stop in end.find_iter(paragraph) {
            let (before, behind) = (&paragraph[start..stop.start()], &paragraph[stop.end()..]);
            if stop.as_str().starts_with('.') && goes_on(before, behind) {
                continue;
            }
            found.push(paragraph[start..stop.end()].trim());
            start = stop.end();
        }
    }
    found.push(paragraph[start..].trim());
    found.retain(|sentence| !sentence.is_empty());
    found
}

/// Whether the sentence continues after the full stop between `before` and `behind`.
fn goes_on(before: &str, behind: &str) -> bool {
    let behind = behind.trim_start_matches(OPENING);
    let Some(next) = behind.chars().next() else { return false };
    let mut words = before.split_whitespace().rev();
    let word = words.next().unwrap_or_default().trim_start_matches(OPENING);
    if next.is_lowercase() {
        return true;
    }
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        let following = behind.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        return is_ordinal(word, words.next(), following);
    }
    let letters = word.chars().count();
    let initials =
        letters == 1 || (word.contains('.') && word.split('.').all(|part| (1..=2).contains(&part.chars().count())));
    (initials && word.chars().all(|c| c.is_alphabetic() || c == '.') && !is_one_of("a.m p.m U.S", word))
        || is_one_of(SHORT, word)
        || (next.is_numeric() && is_one_of(BEFORE_NUMBER, word))
}

/// Whether a number before a full stop is an ordinal or the number of a list item.
fn is_ordinal(word: &str, before: Option<&str>, behind: &str) -> bool {
    // "3./4", "3.–5" and "3.10" are a range of days, and a day with its month.
    let parts: Vec<&str> = word.split(['.', '/', '-', '–']).filter(|part| !part.is_empty()).collect();
    let short = |part: &&str| part.len() <= 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    if parts.len() > 3 || !parts.iter().all(short) {
        return false;
    }
    let Some(before) = before else { return true };
    let before = before.trim_start_matches(OPENING).to_lowercase();
    is_one_of(BEFORE_ORDINAL, &before) || is_one_of(AFTER_ORDINAL, behind)
}

/// The sentences, list items and table rows that contain a number, each with its numbers and the line in which it begins.
pub(super) fn figures(text: &str) -> Vec<Value> {
    let Some(figure) = FIGURE.as_ref() else { return Vec::new() };
    let mut found = Vec::new();
    for paragraph in prose(text) {
        for sentence in sentences(&paragraph.text) {
            let numbers: Vec<&str> = figure.find_iter(sentence).map(|number| number.as_str().trim()).collect();
            if let Some(first) = numbers.first() {
                found.push(json!({ "figure": first, "figures": numbers, "sentence": sentence, "line": paragraph.line_of(sentence) }));
            }
        }
    }
    found
}

/// The numbers of a text as they are written, without their units, each once.
pub(super) fn numbers(text: &str) -> BTreeSet<&str> {
    NUMBER.as_ref().map(|number| number.find_iter(text).map(|found| found.as_str()).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(paragraph: &str) -> String {
        sentences(paragraph).join(" / ")
    }

    #[test]
    fn a_sentence_goes_on_behind_a_short_word_and_an_ordinal() {
        for one in [
            "Der Rat tagte am 3. Mai in Bonn.",
            "Am 3. Der Rat hat es notiert.",
            "Es waren 3,2 Mio. Euro, vgl. Abs. 4 und Nr. 12.",
            "Im 3. Quartal stieg z. B. Öl, d. h. Diesel.",
            "Vom 3. bis 12. Juni und am 3./4. Juli war zu.",
            "We met Dr. Ito, Prof. Ada B. Lee and others, e.g. Mr. Smith.",
            "It rose to 3.5 million approx. Twice as much.",
            "See No. 7 (cf. Fig. 2) for it.",
            "Das kostete ca. 5 Mrd. Franken bzw. Dollar.",
        ] {
            assert_eq!(sentences(one), [one]);
        }
    }

    #[test]
    fn a_sentence_ends_where_the_next_begins() {
        assert_eq!(split("There are 3. Then we left."), "There are 3. / Then we left.");
        assert_eq!(split("It was 2024. The end."), "It was 2024. / The end.");
        assert_eq!(
            split("It fell by 3.5. Nobody knew why! Why? \"No.\" He said no."),
            "It fell by 3.5. / Nobody knew why! / Why? / \"No.\" / He said no."
        );
        assert_eq!(split("Apples, pears etc. Others too."), "Apples, pears etc. / Others too.");
        assert_eq!(split("Open until 5 p.m. The rest is shut."), "Open until 5 p.m. / The rest is shut.");
        assert_eq!(split("Er sagte „Nein.“ Sie nicht."), "Er sagte „Nein.“ / Sie nicht.");
    }

    #[test]
    fn items_of_a_numbered_list_stand_alone_and_a_date_does_not() {
        let paragraphs = prose("1. One thing\n2. Another\n   thing\n\nEs war am\n3. Mai.");
        let paragraphs: Vec<&str> = paragraphs.iter().map(|paragraph| paragraph.text.as_str()).collect();
        assert_eq!(paragraphs, ["1. One thing", "2. Another thing", "Es war am 3. Mai."]);
        assert_eq!(split("1. One thing. It is."), "1. One thing. / It is.");
    }

    #[test]
    fn figures_are_as_they_are_written() {
        let of = |text: &str| figures(text).first().map(|found| found["figures"].clone()).unwrap_or_default();
        assert_eq!(of("Der Umsatz stieg am 3. Mai auf 3,2 Mio. Euro."), json!(["3", "3,2 Mio"]));
        assert_eq!(of("1,204.50 euros"), json!(["1,204.50 euros"]));
        let at = |text: &str| figures(text).iter().map(|found| found["line"].as_u64().unwrap()).collect::<Vec<_>>();
        assert_eq!(at("# T 1\n\nIt is\n7. There\nwere 8 of\nthem.\n\n- And 9.\n"), [3, 4, 8]);
        assert_eq!(at(&format!("{} 5.\n\nIt is 7.\n", "word ".repeat(500))), [0, 3]);
        // A long row of numbers is not one number.
        assert_eq!(of("1,2,3,4,5,6,7,8,9"), json!(["1,2,3,4,5,6,7", "8,9"]));
        assert_eq!(
            numbers("12 % of 1'204 on 2024-05-03, 12 times"),
            BTreeSet::from(["03", "05", "12", "1'204", "2024"])
        );
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in any::<String>()) {
            figures(&text);
            prop_assert!(numbers(&text).iter().all(|number| text.contains(number)));
        }

        #[test]
        fn sentences_are_all_of_the_words(text in "([a-zA-ZÄé]{1,5}|[0-9]{1,3}|[.?!] ?| |Mio\\. |am |[\"„(\u{a0}]){0,30}") {
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let said: Vec<String> = sentences(&text).into_iter().flat_map(words).collect();
            prop_assert_eq!(said, words(&text));
        }
    }
}
