//! HTML as Markdown, or as plain text. Pure.
//!
//! Pages are hostile. This reads tokens in one pass and builds no tree: a converter of trees calls itself once a level,
//! and a page of a million open elements would end the daemon. Time and memory grow with the page alone.

mod writer;

use std::convert::Infallible;

use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span, Tokenizer};
use url::Url;

use self::writer::{CODE, STRONG, Writer};

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
    let mut reader = Reader { writer: Writer::new(base), ..Reader::default() };
    let mut emitter = CallbackEmitter::new(|event: CallbackEvent<'_>, _: Span<()>| -> Option<Infallible> {
        reader.event(event);
        None
    });
    emitter.naively_switch_states(true);
    // Reading from memory cannot fail.
    let Ok(()) = Tokenizer::new_with_emitter(html, emitter).finish();
    let title = reader.title.split_whitespace().collect::<Vec<_>>().join(" ");
    Page { title: ghost_domain::text::clip(&title, TITLE_MAX), text: reader.writer.finish() }
}

fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The attributes that are read.
const ATTRIBUTES: [&[u8]; 4] = [b"href", b"src", b"alt", b"start"];

/// A start tag as far as it is read.
#[derive(Default)]
struct Tag {
    name: String,
    /// The values of [`ATTRIBUTES`].
    values: [Option<String>; 4],
    /// The attribute whose value comes next.
    next: Option<usize>,
    self_closing: bool,
}

impl Tag {
    /// A value without white space around it; `None` if it is missing or empty.
    fn value(&mut self, name: &[u8]) -> Option<String> {
        let at = ATTRIBUTES.iter().position(|known| *known == name)?;
        self.values[at].take().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }
}

/// Reads tags: what is written, and what is left out.
#[derive(Default)]
struct Reader {
    writer: Writer,
    title: String,
    in_title: bool,
    /// The element whose content is left out, and how many of it are open.
    skipped: Option<(String, usize)>,
    tag: Tag,
}

impl Reader {
    fn event(&mut self, event: CallbackEvent<'_>) {
        match event {
            CallbackEvent::OpenStartTag { name } => {
                self.tag = Tag { name: lossy(name).into_owned(), ..Tag::default() };
            }
            CallbackEvent::AttributeName { name } => {
                // The first of several values counts.
                let known = ATTRIBUTES.iter().position(|known| *known == name);
                self.tag.next = known.filter(|at| self.tag.values[*at].is_none());
            }
            CallbackEvent::AttributeValue { value } => {
                if let Some(at) = self.tag.next.take() {
                    self.tag.values[at] = Some(lossy(value).into_owned());
                }
            }
            CallbackEvent::CloseStartTag { self_closing } => {
                let mut tag = std::mem::take(&mut self.tag);
                tag.self_closing = self_closing;
                self.open(tag);
            }
            CallbackEvent::EndTag { name } => self.close(&lossy(name)),
            CallbackEvent::String { value } => self.text(&lossy(value)),
            CallbackEvent::Comment { .. } | CallbackEvent::Doctype { .. } | CallbackEvent::Error(_) => {}
        }
    }

    fn text(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.in_title {
            self.title.push_str(text);
        } else {
            self.writer.text(text);
        }
    }

    fn open(&mut self, mut tag: Tag) {
        let name = std::mem::take(&mut tag.name);
        if let Some((skipped, count)) = &mut self.skipped {
            if *skipped == name && !tag.self_closing {
                *count += 1;
            }
            return;
        }
        let writer = &mut self.writer;
        match name.as_str() {
            "script" | "style" | "textarea" | "iframe" => self.skipped = Some((name, 1)),
            "template" | "svg" | "noscript" | "object" | "canvas" | "audio" | "video" | "select" | "noembed"
            | "noframes" => {
                if !tag.self_closing {
                    self.skipped = Some((name, 1));
                }
            }
            "title" => self.in_title = self.title.is_empty(),
            "base" => writer.rebase(&tag.value(b"href").unwrap_or_default()),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                writer.open_heading(name.as_bytes().get(1).map_or(1, |digit| usize::from(digit - b'0')));
            }
            "ul" => writer.open_list(None),
            "ol" => {
                let start = tag.value(b"start").and_then(|start| start.parse().ok());
                writer.open_list(Some(start.unwrap_or(1)));
            }
            "li" => writer.open_item(),
            "blockquote" => writer.open_quote(),
            "pre" => writer.open_pre(),
            "br" => writer.block(1),
            "hr" => writer.rule(),
            "a" => writer.open_link(tag.value(b"href")),
            "img" => writer.image(tag.value(b"alt"), tag.value(b"src")),
            "strong" | "b" => writer.open_inline(STRONG),
            "code" | "kbd" => writer.open_inline(CODE),
            "table" => writer.open_table(),
            "tr" => writer.open_row(),
            "td" | "th" => writer.open_cell(),
            name => {
                if let Some(breaks) = breaks_around(name) {
                    writer.block(breaks);
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
        let writer = &mut self.writer;
        match name {
            "title" => self.in_title = false,
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => writer.close_heading(),
            "ul" | "ol" => writer.close_list(),
            "blockquote" => writer.close_quote(),
            "pre" => writer.close_pre(),
            "a" => writer.close_link(),
            "strong" | "b" => writer.close_inline(STRONG),
            "code" | "kbd" => writer.close_inline(CODE),
            "table" => writer.close_table(),
            "tr" => writer.close_row(),
            name => {
                if let Some(breaks) = breaks_around(name) {
                    writer.block(breaks);
                }
            }
        }
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
