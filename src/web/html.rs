//! HTML as Markdown, or as plain text. Pure.
//!
//! Pages are hostile. This reads tokens in one pass and builds no tree: a converter of trees calls itself once a level,
//! and a page of a million open elements would end the daemon. Time and memory grow with the page alone.

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};
use url::Url;

/// Levels of lists and quotes that are shown by indentation.
const DEPTH_MAX: usize = 8;
/// Cells of one row that get a column.
const CELLS_MAX: usize = 64;
/// Bytes of a link's address.
const LINK_MAX: usize = 2_000;
/// Characters of a title.
const TITLE_MAX: usize = 300;

/// What a page says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Its title; empty if it has none.
    pub title: String,
    /// Its text.
    pub text: String,
}

/// The text of a page, with headings, lists, links, tables and code as Markdown. Relative links are resolved against
/// `base`.
#[must_use]
pub fn markdown(html: &str, base: &Url) -> Page {
    convert(html, Some(base))
}

/// The text of a page, without any marks.
#[must_use]
pub fn text(html: &str) -> Page {
    convert(html, None)
}

/// The text of a piece of HTML on one line, such as a title with marks.
#[must_use]
pub fn line(html: &str) -> String {
    let text = text(html).text;
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn convert(html: &str, base: Option<&Url>) -> Page {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let mut writer = Writer { base: base.cloned(), marks: base.is_some(), ..Writer::default() };
    for token in Tokenizer::new_with_emitter(html, emitter) {
        // Reading from memory cannot fail.
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => writer.open(&tag),
            Token::EndTag(tag) => writer.close(&lossy(&tag.name)),
            Token::String(text) => writer.text(&lossy(&text.value)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }
    writer.finish()
}

fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn attribute(tag: &StartTag<()>, name: &str) -> Option<String> {
    tag.attributes
        .get(name.as_bytes())
        .map(|value| lossy(&value.value).trim().to_owned())
        .filter(|text| !text.is_empty())
}

/// An open link: where its text begins, and where it leads.
struct Link {
    at: usize,
    to: String,
}

#[derive(Default)]
struct Writer {
    base: Option<Url>,
    /// Whether Markdown's marks are written.
    marks: bool,
    out: String,
    title: String,
    /// Line breaks before the next text.
    breaks: usize,
    /// Whether a space comes before the next text.
    space: bool,
    in_title: bool,
    /// The element whose content is left out, and how many of it are open.
    skipped: Option<(String, usize)>,
    /// Open lists: the number of the next item, or `None` for bullets.
    lists: Vec<Option<u32>>,
    /// Lists beyond the depth that is shown.
    deeper: usize,
    bullet: Option<String>,
    quotes: usize,
    pre: usize,
    link: Option<Link>,
    heading: bool,
    tables: usize,
    /// Cells of the open row of the outermost table; `None` outside rows.
    row: Option<usize>,
    /// Whether that table has a row already.
    has_row: bool,
    /// Whether an inline mark is open, by mark.
    strong: bool,
    code: bool,
}

impl Writer {
    /// Whether everything goes on one line here.
    fn is_inline(&self) -> bool {
        self.link.is_some() || self.heading || (self.row.is_some() && self.tables == 1)
    }

    fn block(&mut self, breaks: usize) {
        self.end_marks();
        if self.is_inline() {
            self.space = true;
        } else {
            self.breaks = self.breaks.max(breaks);
            self.space = false;
        }
    }

    fn end_marks(&mut self) {
        for (open, mark) in [(std::mem::take(&mut self.strong), "**"), (std::mem::take(&mut self.code), "`")] {
            if open {
                self.end_mark(mark);
            }
        }
    }

    /// Begins a line or a space if one is due.
    fn lead(&mut self) {
        if self.breaks > 0 || self.out.is_empty() {
            if !self.out.is_empty() {
                for _ in 0..self.breaks {
                    self.out.push('\n');
                }
            }
            self.begin_line();
        } else if self.space && !self.out.ends_with([' ', '\n']) {
            self.out.push(' ');
        }
        (self.breaks, self.space) = (0, false);
    }

    fn begin_line(&mut self) {
        if !self.marks {
            return;
        }
        for _ in 0..self.quotes.min(DEPTH_MAX) {
            self.out.push_str("> ");
        }
        let depth = self.lists.len();
        let bullet = self.bullet.take();
        for _ in 0..depth.saturating_sub(usize::from(bullet.is_some())) {
            self.out.push_str("  ");
        }
        if let Some(bullet) = bullet {
            self.out.push_str(&bullet);
        }
    }

    fn put(&mut self, text: &str) {
        self.lead();
        self.out.push_str(text);
    }

    fn mark(&mut self, mark: &str) {
        if self.marks {
            self.put(mark);
        }
    }

    /// Ends an inline mark; one without content goes away.
    fn end_mark(&mut self, mark: &str) {
        if !self.marks {
            return;
        }
        if self.out.ends_with(mark) {
            self.out.truncate(self.out.len() - mark.len());
        } else {
            self.out.push_str(mark);
        }
    }

    fn text(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.in_title {
            self.title.push_str(text);
            return;
        }
        if self.pre > 0 {
            self.preformatted(text);
            return;
        }
        for (at, word) in text.split(|c: char| c.is_ascii_whitespace()).enumerate() {
            if at > 0 {
                self.space = true;
            }
            if !word.is_empty() {
                self.put(word);
            }
        }
    }

    fn preformatted(&mut self, text: &str) {
        for (at, line) in text.split('\n').enumerate() {
            if at > 0 {
                self.breaks += 1;
            }
            let line = line.trim_end_matches('\r');
            if !line.is_empty() {
                self.put(line);
            }
        }
    }

    fn open(&mut self, tag: &StartTag<()>) {
        let name = lossy(&tag.name).into_owned();
        if let Some((skipped, count)) = &mut self.skipped {
            if *skipped == name && !tag.self_closing {
                *count += 1;
            }
            return;
        }
        match name.as_str() {
            "script" | "style" | "template" | "svg" | "noscript" | "iframe" | "object" | "canvas" | "audio"
            | "video" | "select" | "textarea" | "noembed" | "noframes" => {
                if !tag.self_closing || matches!(name.as_str(), "script" | "style" | "textarea" | "iframe") {
                    self.skipped = Some((name, 1));
                }
            }
            "title" => self.in_title = self.title.is_empty(),
            "base" => {
                let href = attribute(tag, "href");
                if let Some(base) = href.and_then(|href| self.base.as_ref()?.join(&href).ok()) {
                    self.base = Some(base);
                }
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.end_heading();
                self.block(2);
                if !self.is_inline() {
                    let level = name.as_bytes().get(1).map_or(1, |digit| usize::from(digit - b'0'));
                    self.mark(&"#".repeat(level));
                    (self.heading, self.space) = (true, self.marks);
                }
            }
            "ul" | "ol" => self.open_list(
                (name == "ol").then(|| attribute(tag, "start").and_then(|start| start.parse().ok()).unwrap_or(1)),
            ),
            "li" => self.open_item(),
            "blockquote" => {
                self.block(2);
                self.quotes += 1;
            }
            "pre" => {
                self.block(2);
                if self.pre == 0 && !self.is_inline() && self.marks {
                    self.mark("```");
                    self.breaks = 1;
                }
                self.pre += 1;
            }
            "br" => self.block(1),
            "hr" => {
                self.block(2);
                if !self.is_inline() {
                    self.mark("---");
                    self.breaks = 2;
                }
            }
            "a" => self.open_link(tag),
            "img" => self.image(tag),
            "strong" | "b" if self.pre == 0 && !self.strong => {
                self.mark("**");
                self.strong = self.marks;
            }
            "code" | "kbd" if self.pre == 0 && !self.code => {
                self.mark("`");
                self.code = self.marks;
            }
            "table" => {
                self.block(2);
                self.tables += 1;
                if self.tables == 1 {
                    (self.row, self.has_row) = (None, false);
                }
            }
            "tr" => self.open_row(),
            "td" | "th" => self.open_cell(),
            name => {
                if let Some(breaks) = breaks_around(name) {
                    self.block(breaks);
                }
            }
        }
    }

    fn close(&mut self, name: &str) {
        if let Some((skipped, count)) = &mut self.skipped {
            if skipped == name {
                *count -= 1;
                if *count == 0 {
                    self.skipped = None;
                }
            }
            return;
        }
        match name {
            "title" => self.in_title = false,
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.end_heading();
                self.block(2);
            }
            "ul" | "ol" => self.close_list(),
            "blockquote" => {
                self.block(2);
                self.quotes = self.quotes.saturating_sub(1);
            }
            "pre" if self.pre > 0 => {
                self.pre -= 1;
                if self.pre == 0 && !self.is_inline() && self.marks {
                    self.breaks = 1;
                    self.mark("```");
                }
                self.block(2);
            }
            "a" => self.close_link(),
            "strong" | "b" if std::mem::take(&mut self.strong) => self.end_mark("**"),
            "code" | "kbd" if std::mem::take(&mut self.code) => self.end_mark("`"),
            "table" => {
                self.close_row();
                self.tables = self.tables.saturating_sub(1);
                self.block(2);
            }
            "tr" => self.close_row(),
            name => {
                if let Some(breaks) = breaks_around(name) {
                    self.block(breaks);
                }
            }
        }
    }

    fn end_heading(&mut self) {
        if std::mem::take(&mut self.heading) {
            self.close_link();
            self.block(2);
        }
    }

    fn open_list(&mut self, number: Option<u32>) {
        self.block(if self.lists.is_empty() { 2 } else { 1 });
        if self.lists.len() < DEPTH_MAX {
            self.lists.push(number);
        } else {
            self.deeper += 1;
        }
    }

    fn close_list(&mut self) {
        if self.deeper > 0 {
            self.deeper -= 1;
        } else {
            self.lists.pop();
        }
        self.bullet = None;
        self.block(if self.lists.is_empty() { 2 } else { 1 });
    }

    fn open_item(&mut self) {
        self.block(1);
        if self.is_inline() || !self.marks {
            return;
        }
        self.bullet = Some(match self.lists.last_mut() {
            Some(Some(number)) => {
                let bullet = format!("{number}. ");
                *number = number.saturating_add(1);
                bullet
            }
            Some(None) | None => "- ".to_owned(),
        });
    }

    fn open_link(&mut self, tag: &StartTag<()>) {
        self.close_link();
        if !self.marks || self.pre > 0 {
            return;
        }
        let Some(href) = attribute(tag, "href").filter(|href| !href.starts_with('#') && href.len() <= LINK_MAX) else {
            return;
        };
        let Some(to) = self.base.as_ref().and_then(|base| base.join(&href).ok()) else { return };
        if matches!(to.scheme(), "http" | "https" | "mailto") {
            self.end_marks();
            self.lead();
            self.link = Some(Link { at: self.out.len(), to: to.into() });
        }
    }

    fn close_link(&mut self) {
        let Some(link) = self.link.take() else { return };
        // Marks that began within the link end with it.
        self.end_marks();
        let text = self.out.split_off(link.at.min(self.out.len()));
        let text = text.trim();
        if !text.is_empty() {
            self.out.push_str(&format!("[{text}]({})", link.to));
        }
    }

    fn image(&mut self, tag: &StartTag<()>) {
        let Some(alt) = attribute(tag, "alt").filter(|alt| alt.len() <= LINK_MAX) else { return };
        let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
        if self.link.is_some() || !self.marks {
            self.put(&alt);
            return;
        }
        let src = attribute(tag, "src").filter(|src| src.len() <= LINK_MAX);
        let src = src.and_then(|src| self.base.as_ref()?.join(&src).ok());
        if let Some(src) = src.filter(|src| matches!(src.scheme(), "http" | "https")) {
            self.put(&format!("![{alt}]({src})"));
        }
    }

    fn open_row(&mut self) {
        if self.tables > 1 || !self.marks {
            self.block(1);
            return;
        }
        self.close_row();
        self.block(1);
        self.row = Some(0);
    }

    fn open_cell(&mut self) {
        if self.tables > 1 || !self.marks || self.row.is_none() {
            self.block(1);
            return;
        }
        self.close_link();
        self.end_marks();
        let Some(cells) = &mut self.row else { return };
        *cells += 1;
        if *cells > CELLS_MAX {
            self.space = true;
        } else {
            self.space = *cells > 1;
            self.put("|");
            self.space = true;
        }
    }

    fn close_row(&mut self) {
        if self.tables > 1 {
            self.block(1);
            return;
        }
        let Some(cells) = self.row else { return };
        self.close_link();
        self.end_marks();
        if cells > 0 {
            self.space = true;
            self.put("|");
        }
        self.row = None;
        if cells > 0 && !std::mem::replace(&mut self.has_row, true) {
            self.breaks = 1;
            let rule = format!("|{}", " --- |".repeat(cells.min(CELLS_MAX)));
            self.put(&rule);
        }
        self.block(1);
    }

    fn finish(mut self) -> Page {
        self.close_row();
        self.close_link();
        self.end_marks();
        let title = self.title.split_whitespace().collect::<Vec<_>>().join(" ");
        Page { title: ghost_domain::text::clip(&title, TITLE_MAX), text: self.out.trim().to_owned() }
    }
}

/// Line breaks around an element; `None` for one within a line.
fn breaks_around(name: &str) -> Option<usize> {
    Some(match name {
        "p" | "article" | "section" | "main" | "header" | "footer" | "nav" | "aside" | "figure" | "form"
        | "fieldset" | "details" | "dl" | "address" | "body" | "html" | "head" => 2,
        "div" | "li" | "dt" | "dd" | "summary" | "figcaption" | "caption" | "legend" | "option" | "thead" | "tbody"
        | "tfoot" | "center" | "search" | "dialog" | "menu" | "hgroup" => 1,
        _ => return None,
    })
}

#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;
