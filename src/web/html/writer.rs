//! Writes the text of a page, line by line, with Markdown's marks if they are wanted. It knows nothing of HTML's syntax.

use url::Url;

/// Levels of lists and quotes that are shown by indentation.
const DEPTH_MAX: usize = 8;
/// Cells of one row that get a column.
const CELLS_MAX: usize = 64;
/// Bytes of a link's address.
const LINK_MAX: usize = 2_000;

/// The inline marks, and the places of two of them.
const INLINE: [&str; 2] = ["**", "`"];
pub(super) const STRONG: usize = 0;
pub(super) const CODE: usize = 1;

/// An open link: where its text begins, and where it leads.
struct Link {
    at: usize,
    to: String,
}

/// The text so far, and what is open in it.
#[derive(Default)]
pub(super) struct Writer {
    base: Option<Url>,
    /// Whether Markdown's marks are written.
    marks: bool,
    out: String,
    /// Line breaks before the next text.
    breaks: usize,
    /// Whether a space comes before the next text.
    space: bool,
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
    /// Which of [`INLINE`] are open.
    inline: [bool; 2],
}

impl Writer {
    /// A writer of Markdown if there is a base for links, else of plain text.
    pub(super) fn new(base: Option<&Url>) -> Self {
        Self { base: base.cloned(), marks: base.is_some(), ..Self::default() }
    }

    /// Resolves further links against another base.
    pub(super) fn rebase(&mut self, href: &str) {
        if let Some(base) = self.base.as_ref().and_then(|base| base.join(href).ok()) {
            self.base = Some(base);
        }
    }

    /// Whether everything goes on one line here.
    fn is_inline(&self) -> bool {
        self.link.is_some() || self.heading || (self.row.is_some() && self.tables == 1)
    }

    pub(super) fn block(&mut self, breaks: usize) {
        self.end_marks();
        if self.is_inline() {
            self.space = true;
        } else {
            self.breaks = self.breaks.max(breaks);
            self.space = false;
        }
    }

    fn end_marks(&mut self) {
        self.close_inline(STRONG);
        self.close_inline(CODE);
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

    /// Text between tags.
    pub(super) fn text(&mut self, text: &str) {
        if self.pre > 0 {
            self.preformatted(text);
            return;
        }
        // Pieces whose only white space is single spaces are written whole.
        let (bytes, mut at) = (text.as_bytes(), 0);
        while at < bytes.len() {
            let start = at;
            while at < bytes.len()
                && (!bytes[at].is_ascii_whitespace()
                    || (bytes[at] == b' '
                        && at > start
                        && bytes.get(at + 1).is_some_and(|next| !next.is_ascii_whitespace())))
            {
                at += 1;
            }
            if at > start {
                self.put(&text[start..at]);
            }
            while at < bytes.len() && bytes[at].is_ascii_whitespace() {
                self.space = true;
                at += 1;
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

    pub(super) fn open_heading(&mut self, level: usize) {
        self.end_heading();
        self.block(2);
        if !self.is_inline() {
            self.mark(&"#".repeat(level));
            (self.heading, self.space) = (true, self.marks);
        }
    }

    pub(super) fn close_heading(&mut self) {
        self.end_heading();
        self.block(2);
    }

    pub(super) fn open_quote(&mut self) {
        self.block(2);
        self.quotes += 1;
    }

    pub(super) fn close_quote(&mut self) {
        self.block(2);
        self.quotes = self.quotes.saturating_sub(1);
    }

    pub(super) fn open_pre(&mut self) {
        self.block(2);
        if self.pre == 0 && !self.is_inline() && self.marks {
            self.mark("```");
            self.breaks = 1;
        }
        self.pre += 1;
    }

    pub(super) fn close_pre(&mut self) {
        if self.pre == 0 {
            return;
        }
        self.pre -= 1;
        if self.pre == 0 && !self.is_inline() && self.marks {
            self.breaks = 1;
            self.mark("```");
        }
        self.block(2);
    }

    pub(super) fn rule(&mut self) {
        self.block(2);
        if !self.is_inline() {
            self.mark("---");
            self.breaks = 2;
        }
    }

    pub(super) fn open_inline(&mut self, mark: usize) {
        if self.pre == 0 && !self.inline[mark] {
            self.mark(INLINE[mark]);
            self.inline[mark] = self.marks;
        }
    }

    /// Ends an inline mark if it is open; one without content goes away.
    pub(super) fn close_inline(&mut self, mark: usize) {
        if !std::mem::take(&mut self.inline[mark]) {
            return;
        }
        if self.out.ends_with(INLINE[mark]) {
            self.out.truncate(self.out.len() - INLINE[mark].len());
        } else {
            self.out.push_str(INLINE[mark]);
        }
    }

    pub(super) fn open_table(&mut self) {
        self.block(2);
        self.tables += 1;
        if self.tables == 1 {
            (self.row, self.has_row) = (None, false);
        }
    }

    pub(super) fn close_table(&mut self) {
        self.close_row();
        self.tables = self.tables.saturating_sub(1);
        self.block(2);
    }

    fn end_heading(&mut self) {
        if std::mem::take(&mut self.heading) {
            self.close_link();
            self.block(2);
        }
    }

    pub(super) fn open_list(&mut self, number: Option<u32>) {
        self.block(if self.lists.is_empty() { 2 } else { 1 });
        if self.lists.len() < DEPTH_MAX {
            self.lists.push(number);
        } else {
            self.deeper += 1;
        }
    }

    pub(super) fn close_list(&mut self) {
        if self.deeper > 0 {
            self.deeper -= 1;
        } else {
            self.lists.pop();
        }
        self.bullet = None;
        self.block(if self.lists.is_empty() { 2 } else { 1 });
    }

    pub(super) fn open_item(&mut self) {
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

    pub(super) fn open_link(&mut self, href: Option<String>) {
        self.close_link();
        if !self.marks || self.pre > 0 {
            return;
        }
        let Some(href) = href.filter(|href| !href.starts_with('#') && href.len() <= LINK_MAX) else {
            return;
        };
        let Some(to) = self.target(&href) else { return };
        self.end_marks();
        self.lead();
        self.link = Some(Link { at: self.out.len(), to });
    }

    /// Where a link leads, if that is a page or an address of mail.
    fn target(&self, href: &str) -> Option<String> {
        let base = self.base.as_ref()?;
        // Most links are paths in plain characters. Joining them properly takes longer than everything else here.
        let plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'=' | b'?' | b'&' | b'#');
        if href.starts_with('/') && !href.starts_with("//") && href.bytes().all(plain) && !base.cannot_be_a_base() {
            return Some(format!("{}{href}", &base[..url::Position::BeforePath]));
        }
        let to = base.join(href).ok()?;
        matches!(to.scheme(), "http" | "https" | "mailto").then(|| to.into())
    }

    pub(super) fn close_link(&mut self) {
        let Some(link) = self.link.take() else { return };
        // Marks that began within the link end with it.
        self.end_marks();
        let text = self.out.split_off(link.at.min(self.out.len()));
        let text = text.trim();
        if !text.is_empty() {
            self.out.push_str(&format!("[{text}]({})", link.to));
        }
    }

    pub(super) fn image(&mut self, alt: Option<String>, src: Option<String>) {
        let Some(alt) = alt.filter(|alt| alt.len() <= LINK_MAX) else { return };
        let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
        if self.link.is_some() || !self.marks {
            self.put(&alt);
            return;
        }
        let src = src.filter(|src| src.len() <= LINK_MAX);
        let src = src.and_then(|src| self.base.as_ref()?.join(&src).ok());
        if let Some(src) = src.filter(|src| matches!(src.scheme(), "http" | "https")) {
            self.put(&format!("![{alt}]({src})"));
        }
    }

    pub(super) fn open_row(&mut self) {
        if self.tables > 1 || !self.marks {
            self.block(1);
            return;
        }
        self.close_row();
        self.block(1);
        self.row = Some(0);
    }

    pub(super) fn open_cell(&mut self) {
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

    pub(super) fn close_row(&mut self) {
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

    /// The whole text.
    pub(super) fn finish(mut self) -> String {
        self.close_row();
        self.close_link();
        self.end_marks();
        self.out.trim().to_owned()
    }
}
