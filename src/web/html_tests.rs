//! Pages become Markdown, and no page takes more than its share of time and memory.

use proptest::prelude::*;

use super::*;

fn of(html: &str) -> String {
    markdown(html, &Url::parse("https://a.example/x/y").unwrap()).text
}

// covers: BI-13
#[test]
fn a_page_becomes_markdown() {
    let page = "<!doctype html><html><head><title> The\n title </title><style>p{}</style><script>if (a < b) { '</p>' }</script>\
        </head><body><h1>One <a href='/1'>link</a></h1><p>Some <b>bold</b> and <code>code</code>,\n  grün &amp; more.<br>Next</p>\
        <ul><li>first<li>second <ul><li>inner</li></ul></li></ul><ol start=3><li>third</ol>\
        <blockquote><p>said</p></blockquote><pre><code>a  b\n\n  c</code></pre><hr>\
        <table><thead><tr><th>k<th>v</tr></thead><tr><td>a<td><p>b</p>c</table>\
        <a href=\"z?q=1#f\"><div><h3>Card</h3><img src=i.png alt='An image'></div></a><img src='//b.example/i.png' alt=pic>\
        <a href='javascript:x()'>no</a> <a href='#x'>here</a><template><p>not</p></template><!-- not --></body></html>";
    let expected = "# One [link](https://a.example/1)\n\nSome **bold** and `code`, grün & more.\nNext\n\n- first\n- second\n  - inner\n\n\
        3. third\n\n> said\n\n```\na  b\n\n  c\n```\n\n---\n\n| k | v |\n| --- | --- |\n| a | b c |\n\n\
        [Card An image](https://a.example/x/z?q=1#f) ![pic](https://b.example/i.png)no here";
    let page = markdown(page, &Url::parse("https://a.example/x/y").unwrap());
    assert_eq!(page.title, "The title");
    assert_eq!(page.text, expected);
}

#[test]
fn plain_text_has_no_marks() {
    let page = text("<h1>A</h1><ul><li><a href=x>b</a> <b>c</b></ul><table><tr><td>d<td>e</table><pre>f\n g</pre>");
    assert_eq!(page.text, "A\n\nb c\n\nd\ne\n\nf\n g");
    assert_eq!(line("<strong>Best</strong>\n of &lt;all&gt;"), "Best of <all>");
}

#[test]
fn broken_pages_are_read_as_far_as_they_go() {
    assert_eq!(of("<p>a</b></div></table></li></pre><b>b"), "a\n\n**b**");
    assert_eq!(of("<a href=/1>one<a href=/2>two"), "[one](https://a.example/1)[two](https://a.example/2)");
    assert_eq!(of("<b></b>a<code></code>"), "a");
    assert_eq!(of("<base href='https://b.example/'><a href=c>d</a>"), "[d](https://b.example/c)");
    assert_eq!(of("<script>unclosed"), "");
    assert_eq!(of("<table><tr><td>x<table><tr><td>y</table></table>after"), "| x\ny\n|\n| --- |\n\nafter");
    assert_eq!(of(""), "");
}

/// A tree of these pages has a million levels; a converter that calls itself once a level ends the process.
#[test]
fn deep_and_wide_pages_take_time_and_memory_in_proportion() {
    for piece in [
        "<div>",
        "<b>",
        "<ul><li>",
        "<blockquote>x",
        "<table><tr><td>x",
        "<a href=/>x",
        "<span a=",
        "<!--",
        "&#x",
        "</p>",
        "<template>",
        "<h1>x",
        "<pre>\n",
        "<svg>",
        "<div><table></div></table>",
        "<ol><ul><li>x",
    ] {
        let html = piece.repeat(1_000_000 / piece.len());
        let page = of(&html);
        assert!(page.len() <= 40 * html.len(), "{piece}: {} bytes", page.len());
    }
}

proptest! {
    #[test]
    fn no_page_causes_a_panic(pieces in prop::collection::vec(prop::sample::select(vec![
        "<p>", "</p>", "<a href=x>", "</a>", "<b>", "</b>", "<code>", "</code>", "<pre>", "</pre>", "<ul>", "</ul>", "<ol>", "<li>",
        "<table>", "</table>", "<tr>", "</tr>", "<td>", "<th>", "<h2>", "</h2>", "<blockquote>", "</blockquote>", "<br>", "<hr>",
        "<img alt=ü src=x>", "ü", " ", "\n", "**", "`", "<script>", "</script>", "<title>", "</title>", "<svg>", "</svg>", "<", "&amp;",
    ]), 0..40)) {
        let html = pieces.concat();
        let _ = of(&html);
        // Plain text never has more bytes than the page, but for the breaks.
        prop_assert!(text(&html).text.len() <= 3 * html.len() + 10);
    }
}
