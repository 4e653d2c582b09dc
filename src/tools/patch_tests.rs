use ghost_domain::{Code, Refusal};
use proptest::prelude::*;

use super::{Kind, parse_patch};

const OLD: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n";

/// Applies a patch of one file to `old`.
fn applied(patch: &str, old: &str) -> Result<String, Refusal> {
    let files = parse_patch(patch)?;
    assert_eq!(files.len(), 1);
    files[0].apply(old)
}

fn code(result: Result<String, Refusal>) -> Code {
    let refusal = result.unwrap_err();
    assert!(refusal.hint.is_some(), "{refusal}");
    refusal.code
}

// covers: BI-04
#[test]
fn files_are_created_changed_and_deleted() {
    let patch = "diff --git a/x/new.md b/x/new.md\nnew file mode 100644\nindex 000..111\n--- /dev/null\n+++ b/x/new.md\n\
                 @@ -0,0 +1,2 @@\n+a\n+b\n--- a/old.md\t2026-01-01\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n\n\
                 --- a/m.md\n+++ b/m.md\n@@ -1,2 +1,2 @@ fn main()\n one\n-two\n+2\n";
    let files = parse_patch(patch).unwrap();
    let shown: Vec<(&str, Kind)> = files.iter().map(|file| (file.path, file.kind)).collect();
    assert_eq!(shown, [("x/new.md", Kind::Create), ("old.md", Kind::Delete), ("m.md", Kind::Modify)]);
    assert_eq!(files[0].apply("").unwrap(), "a\nb\n");
    assert_eq!(files[1].apply("gone\n").unwrap(), "");
    assert_eq!(files[2].apply(OLD).unwrap(), OLD.replace("two", "2"));
    // Only what is removed whole may be deleted.
    assert_eq!(code(files[1].apply("gone\nkept\n")), Code::Conflict);
    assert_eq!(code(files[1].apply("")), Code::Conflict);
    // A path that has no such prefix keeps its directories.
    assert_eq!(parse_patch("--- a/x\n+++ a/x\n@@ -1 +1 @@\n-a\n+b\n").unwrap()[0].path, "a/x");
    let mixed = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- y\n+++ y\n@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(parse_patch(mixed).unwrap_err().code, Code::InvalidArguments, "a/x and b/x are two files here");
}

// covers: BI-04
#[test]
fn context_must_match_exactly_and_wrong_line_numbers_need_one_place() {
    let patch = |header: &str| format!("--- f\n+++ f\n{header}\n two\n-three\n+3\n");
    let changed = OLD.replace("three", "3");
    assert_eq!(applied(&patch("@@ -2,2 +2,2 @@"), OLD).unwrap(), changed);
    assert_eq!(applied(&patch("@@ -40,2 +40,2 @@"), OLD).unwrap(), changed, "the lines are at one place");
    let twice = format!("{OLD}{OLD}");
    assert_eq!(applied(&patch("@@ -9,2 +9,2 @@"), &twice).unwrap(), format!("{OLD}{changed}"));
    assert_eq!(code(applied(&patch("@@ -5,2 +5,2 @@"), &twice)), Code::Conflict, "several places");
    for old in ["two \nthree\n", "two\nThree\n", "two\n", "", "two\nthree"] {
        assert_eq!(code(applied(&patch("@@ -1,2 +1,2 @@"), old)), Code::Conflict, "{old:?}");
    }
    // Hunks apply in order, each after the one before.
    let two = "--- f\n+++ f\n@@ -6 +6 @@\n-six\n+6\n@@ -1 +1 @@\n-one\n+1\n";
    assert_eq!(code(applied(two, OLD)), Code::Conflict);
}

#[test]
fn ends_of_files_are_kept_as_they_are() {
    let marker = "\\ No newline at end of file\n";
    let to_none = format!("--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n+b\n{marker}");
    assert_eq!(applied(&to_none, "a\nb\n").unwrap(), "a\nb");
    let from_none = format!("--- f\n+++ f\n@@ -1,2 +1,3 @@\n a\n-b\n{marker}+b\n+c\n");
    assert_eq!(applied(&from_none, "a\nb").unwrap(), "a\nb\nc\n");
    let both = format!("--- f\n+++ f\n@@ -1,2 +1,2 @@\n-a\n+A\n b\n{marker}");
    assert_eq!(applied(&both, "a\nb").unwrap(), "A\nb");
    assert_eq!(code(applied(&both, "a\nb\n")), Code::Conflict);
    // A patch whose own last line has no line break still ends its lines.
    assert_eq!(applied("--- f\n+++ f\n@@ -1 +1 @@\n-a\r\n+b\r\n", "a\r\n").unwrap(), "b\r\n");
    assert_eq!(applied("--- f\n+++ f\n@@ -1,3 +1,3 @@\n-a\n+b\n\n c\n", "a\n\nc\n").unwrap(), "b\n\nc\n");
    assert_eq!(applied("--- f\n+++ f\n@@ -0,0 +1 @@\n+first\n", "a\n").unwrap(), "first\na\n");
    assert_eq!(applied("--- f\n+++ f\n@@ -1,0 +2 @@\n+second\n", "a\n").unwrap(), "a\nsecond\n");
    assert_eq!(code(applied("--- f\n+++ f\n@@ -3,0 +4 @@\n+x\n", "a\n")), Code::Conflict);
}

// covers: BI-04
#[test]
fn whatever_is_not_understood_refuses_the_whole_patch() {
    let good = "--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b\n";
    for (patch, line) in [
        (String::new(), 1),
        ("nothing\n".to_owned(), 1),
        ("*** Begin Patch\n*** Update File: f\n".to_owned(), 1),
        (format!("{good}and more\n"), 6),
        (format!("{good} c\n"), 6),
        (format!("{good}+c\n"), 6),
        (format!("{good}@@ -9 +9 @@\n-a\n"), 6),
        (format!("{good}rename from a\nrename to b\n"), 6),
        (format!("{good}Binary files a and b differ\n"), 6),
        ("--- f\n+++ g\n@@ -1 +1 @@\n-a\n+b\n".to_owned(), 1),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n".to_owned(), 1),
        ("--- f\n@@ -1 +1 @@\n-a\n+b\n".to_owned(), 2),
        ("--- f\n+++ f\n".to_owned(), 3),
        ("--- f\n+++ f\n@@ 1 @@\n-a\n".to_owned(), 3),
        ("--- f\n+++ f\n@@ -1,9999999999999999999999 +1 @@\n-a\n".to_owned(), 3),
        ("--- f\n+++ f\n@@ -1 +1 @@\n-a\n-b\n".to_owned(), 5),
        ("--- f\n+++ f\n@@ -1 +1 @@\nxa\n".to_owned(), 4),
        ("--- f\n+++ f\n@@ -1 +1 @@\n\\ No newline at end of file\n-a\n+b\n".to_owned(), 4),
        ("--- /dev/null\n+++ f\n@@ -1 +1 @@\n-a\n+b\n".to_owned(), 3),
        ("--- f\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n".to_owned(), 3),
        ("--- \"f\"\n+++ \"f\"\n@@ -1 +1 @@\n-a\n+b\n".to_owned(), 1),
    ] {
        let refusal = parse_patch(&patch).unwrap_err();
        assert_eq!(refusal.code, Code::InvalidArguments, "{patch:?}");
        assert!(refusal.hint.is_some(), "{patch:?}");
        assert_eq!(refusal.details.unwrap()["line"], line, "{patch:?}");
    }
}

/// Texts with repeated lines, lines that look like parts of a diff, and both kinds of ends.
fn text() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just(""),
        Just("a"),
        Just("b"),
        Just("-- "),
        Just("++ b"),
        Just("@@ -1 +1 @@"),
        Just(" c"),
        Just("\\ d"),
        Just("é\r")
    ];
    (proptest::collection::vec(line, 0..12), any::<bool>()).prop_map(|(lines, ends)| {
        let text = lines.join("\n");
        if ends && !text.is_empty() { text + "\n" } else { text }
    })
}

proptest! {
    // Another program's diff of two texts turns the one into the other, whatever context it has.
    #[test]
    fn a_diff_of_two_texts_turns_one_into_the_other(old in text(), new in text(), context in 0_usize..4) {
        prop_assume!(old != new);
        let mut options = diffy::DiffOptions::new();
        options.set_context_len(context).set_original_filename("a/f").set_modified_filename("b/f");
        let patch = options.create_patch(&old, &new).to_string();
        let files = parse_patch(&patch).unwrap();
        prop_assert_eq!((files.len(), files[0].path), (1, "f"));
        prop_assert_eq!(files[0].apply(&old).unwrap(), new, "{}", patch);
    }

    // Several files in one patch stay apart.
    #[test]
    fn the_files_of_a_patch_stay_apart(pairs in proptest::collection::vec((text(), text()), 1..5)) {
        let pairs: Vec<(String, String)> = pairs.into_iter().filter(|(old, new)| old != new).collect();
        prop_assume!(!pairs.is_empty());
        let patch: String = pairs.iter().enumerate().map(|(n, (old, new))| {
            let mut options = diffy::DiffOptions::new();
            options.set_original_filename(format!("f{n}")).set_modified_filename(format!("f{n}"));
            options.create_patch(old, new).to_string()
        }).collect();
        let files = parse_patch(&patch).unwrap();
        prop_assert_eq!(files.len(), pairs.len());
        for (file, (old, new)) in files.iter().zip(&pairs) {
            prop_assert_eq!(&file.apply(old).unwrap(), new);
        }
    }

    // Nothing that a model writes makes the parser or the application panic, and no line of the result comes from
    // anywhere but the file and the patch.
    #[test]
    fn any_patch_is_refused_or_applies(patch in "(--- f\n\\+\\+\\+ f\n)?(@@ -[0-9]{1,2}(,[0-9])? \\+[0-9](,[0-9])? @@\n([-+ \\\\]?[ab]?\n){0,6}){0,3}", old in text()) {
        if let Ok(files) = parse_patch(&patch) {
            for file in files {
                if let Ok(new) = file.apply(&old) {
                    for line in new.lines() {
                        prop_assert!(old.contains(line) || patch.contains(line));
                    }
                }
            }
        }
    }
}
