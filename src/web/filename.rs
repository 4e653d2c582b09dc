//! The name under which an answer is saved if the agent gave none. Pure.

use url::Url;

/// Characters of a name.
const NAME_MAX: usize = 80;

/// A plain file name: from `Content-Disposition`, else from the address, else `download`. The beginning of the content's
/// hash makes it unique, so that one download never replaces another.
#[must_use]
pub fn of(url: &Url, disposition: Option<&str>, content_type: &str, sha256: &str) -> String {
    let named = disposition.and_then(from_header);
    let from_path = || url.path_segments()?.rfind(|segment| !segment.is_empty()).map(str::to_owned);
    let name = plain(&named.or_else(from_path).unwrap_or_default());
    let name = if name.is_empty() { "download".to_owned() } else { name };
    let ending = match content_type {
        "application/pdf" => ".pdf",
        "image/png" => ".png",
        "image/jpeg" => ".jpg",
        "application/zip" => ".zip",
        _ => "",
    };
    let ending = if name.contains('.') { "" } else { ending };
    format!("{}-{name}{ending}", sha256.get(..8).unwrap_or(sha256))
}

fn from_header(value: &str) -> Option<String> {
    let at = value.to_ascii_lowercase().find("filename=")? + "filename=".len();
    let rest = value.get(at..)?;
    let name = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split(';').next(),
    };
    // Only the last part: a server does not choose the directory.
    name?.rsplit(['/', '\\']).next().map(str::to_owned)
}

/// Letters, digits, `.`, `-` and `_`; everything else is a `-`. It begins with a letter or a digit.
fn plain(name: &str) -> String {
    let ok = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '-' };
    let name: String = name.chars().map(ok).collect();
    let name = name.trim_start_matches(['.', '-', '_']);
    let skipped = name.len().saturating_sub(NAME_MAX);
    name[skipped..].trim_start_matches(['.', '-', '_']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_leaves_its_directory() {
        let name = |url: &str, disposition: Option<&str>, kind: &str| {
            of(&Url::parse(url).unwrap(), disposition, kind, "0123456789abcdef")
        };
        for (url, disposition, kind, expected) in [
            ("http://a/x/report.pdf?y", None, "application/pdf", "01234567-report.pdf"),
            ("http://a/", None, "application/pdf", "01234567-download.pdf"),
            ("http://a/%2e%2e/..%2Fetc", None, "", "01234567-2Fetc"),
            ("http://a/b", Some("attachment; filename=\"../../etc/passwd\""), "", "01234567-passwd"),
            ("http://a/b", Some("attachment; FILENAME=..\\x.exe; a=b"), "", "01234567-x.exe"),
            ("http://a/b", Some("attachment; filename=\".hidden\""), "", "01234567-hidden"),
            ("http://a/b/", Some("inline"), "image/png", "01234567-b.png"),
            ("http://a/b", Some("attachment; filename=\"\n\0ü\""), "", "01234567-download"),
        ] {
            assert_eq!(name(url, disposition, kind), expected, "{url} {disposition:?}");
        }
        assert!(name(&format!("http://a/{}", "x".repeat(500)), None, "").len() < 100);
    }
}
