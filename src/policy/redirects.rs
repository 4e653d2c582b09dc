//! Judges redirections: their files must be inside the workspace and known before the line runs (SBX-11).
//!
//! It must never accept a name that bash expands further.

use brush_parser::ast::{self, IoFileRedirectTarget, IoRedirect};

use crate::refusal::Cause;
use crate::walk::Walk;
use crate::word::Scan;

/// Whether a part of a path names git's own directory, also where case, short names or trailing dots do not count.
pub(crate) fn is_git_place(part: &str) -> bool {
    let part = part.trim_end_matches(['.', ' ']);
    part.eq_ignore_ascii_case(".git") || part.eq_ignore_ascii_case("git~1")
}

impl Walk<'_> {
    pub fn redirects(&mut self, redirects: Option<&ast::RedirectList>) {
        for redirect in redirects.iter().flat_map(|list| &list.0) {
            self.redirect(redirect);
        }
    }

    pub fn redirect(&mut self, redirect: &IoRedirect) {
        match redirect {
            IoRedirect::File(_, _, IoFileRedirectTarget::Filename(word)) => self.file(&word.value),
            IoRedirect::File(_, _, IoFileRedirectTarget::ProcessSubstitution(_, group)) => {
                self.list(&group.list, false)
            }
            IoRedirect::File(_, _, IoFileRedirectTarget::Fd(_)) => {}
            IoRedirect::File(_, _, IoFileRedirectTarget::Duplicate(word)) => {
                // Bash expands the file's name of `>& name` twice, so that even quoted text in it runs.
                if !word.value.strip_suffix('-').unwrap_or(&word.value).bytes().all(|b| b.is_ascii_digit()) {
                    self.fault(Cause::Ambiguous, &word.value);
                }
            }
            IoRedirect::OutputAndError(word, _) => self.file(&word.value),
            IoRedirect::HereString(_, word) => {
                self.word(&word.value);
            }
            IoRedirect::HereDocument(_, document) => {
                if document.requires_expansion {
                    match Scan::new(&document.doc.value).document() {
                        Ok(word) => self.visit(&word),
                        Err(fault) => self.fault_in(&document.doc.value, fault),
                    }
                }
            }
        }
    }

    /// Judges the file of a redirection.
    fn file(&mut self, source: &str) {
        let word = self.word(source);
        let Some(path) = word.value() else { return self.fault(Cause::DynamicTarget, source) };
        if path.starts_with("/dev/tcp") || path.starts_with("/dev/udp") {
            return self.fault(Cause::Network, path);
        }
        let descriptor =
            path.strip_prefix("/dev/fd/").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        if descriptor || matches!(path, "/dev/null" | "/dev/stdin" | "/dev/stdout" | "/dev/stderr") {
            return;
        }
        let hidden = path.split('/').any(|part| part == ".." || is_git_place(part));
        let inside = |root: &String| path.strip_prefix(&**root).is_some_and(|rest| rest.starts_with('/'));
        let outside = path.starts_with('/') && !self.view.policy.settings().workspace.iter().any(inside);
        if hidden || outside || path.is_empty() {
            return self.fault(Cause::Outside, path);
        }
        self.files.push(path.to_owned());
        if !path.starts_with('/') {
            self.target.get_or_insert_with(|| path.to_owned());
        }
    }
}
