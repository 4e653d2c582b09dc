//! The newsroom's reviewer checks every figure of a draft against the notes, and against the source: the whole of a small
//! one, of a large one the lines that the notes name. It names each figure that it does not find, and does not approve what
//! could not be read.

use std::path::Path;

use ghost_domain::transcript::Block;
use serde_json::{Value, json};

use super::tests::{go_on, said};
use super::*;
use crate::model::NoDeltas;
use crate::testing::request;
use ghost_domain::testing::ManualClock;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../worlds/newsroom/scripts");

const MAIL: &str = "<inbox>\nPlease review the draft of this job's briefing against its sources.
job_id: 0123456789abcdef
draft: output/reports/d.md
review: output/reviews/r.md
input: inputs/j
inputs: 4
1. town.md | agents/chora/notes/j/1-town.md | SIZE
2. sales.csv | agents/thaum/notes/j/2-sales.md | SIZE
3. app.log | agents/praxis/notes/j/3-app.md | SIZE
4. blob.bin | agents/chora/notes/j/4-blob.md | SIZE
</inbox>";

const DRAFT: &str = "# Briefing of job 0123456789abcdef

Drafted by chora from the notes of the desk; not yet reviewed.

## Summary

Inputs: 4. Read: 3. Read in part: 0. Not read: 1.

- 1. town.md: The town has 3,2 Mio. trees.
- 2. sales.csv: A table of 3 rows with the columns month, tonnes.
- 3. app.log: A log of 3 lines, 1 ERROR, 2 INFO from 12:00:00 to 12:00:09.
- 4. blob.bin: not read: it is a binary file, not text

## 1. town.md

**Town** — The town has 3,2 Mio. trees.

| year | birds |
| --- | --- |
| 2023 | 41 |

… of 2 rows

- The town has 3,2 Mio. trees. (line 3)

## 2. sales.csv

**sales** — A table of 3 rows with the columns month, tonnes.

Counted: 3 rows

- tonnes: 3 numbers, sum 267, from 88 to 90

| month | tonnes |
| --- | --- |
| May | 88 |

… of 3 rows

## 3. app.log

**app** — A log of 3 lines, 1 ERROR, 2 INFO from 12:00:00 to 12:00:09.

Counted: 3 lines, 1 ERROR, 2 INFO

- 1 × ERROR disk full, at 12:00:09 (line 3)

## 4. blob.bin

This input could not be read.
";

/// The notes on each input, from the file's name on.
const NOTES: [(&str, &str); 4] = [
    (
        "1-town.md",
        "## Summary\n\nThe town has 3,2 Mio. trees.\n\n## Tables\n\n| year | birds |\n| --- | --- |\n| 2023 | 41 |\n| 2024 | 43 |\n\
        … of 2 rows\n\n## Figures\n\n- The town has 3,2 Mio. trees. (line 3)\n",
    ),
    (
        "2-sales.md",
        "## Summary\n\nA table of 3 rows with the columns month, tonnes.\n\n## Counted\n\nCounted: 3 rows\n\
        - tonnes: 3 numbers, sum 267, from 88 to 90\n\n## Tables\n\n| month | tonnes |\n| --- | --- |\n| May | 88 |\n",
    ),
    (
        "3-app.md",
        "## Summary\n\nA log of 3 lines, 1 ERROR, 2 INFO from 12:00:00 to 12:00:09.\n\n## Counted\n\n\
        Counted: 3 lines, 1 ERROR, 2 INFO\n- 1 × ERROR disk full, at 12:00:09 (line 3)\n",
    ),
    ("4-blob.md", "## Summary\n\nThe file could not be read: it is a binary file, not text\n"),
];

/// The results of the workspace tools. A source with lines asked for gives these alone.
fn result(draft: &str, name: &str, arguments: &Value) -> (String, bool) {
    let path = arguments["path"].as_str().unwrap();
    let text = match path {
        _ if name == "workspace.write" => return (json!({ "bytes": 1 }).to_string(), false),
        "output/reports/d.md" => draft,
        "inputs/j/town.md" => {
            "# Town\n\nThe town has 3,2 Mio. trees.\n\n| year | birds |\n|---|---|\n| 2023 | 41 |\n| 2024 | 43 |\n"
        }
        "inputs/j/sales.csv" => "month,tonnes\nMay,88\nJune,89\nJuly,90\n",
        "inputs/j/app.log" => "12:00:00 INFO up\n12:00:03 INFO on\n12:00:09 ERROR disk full\n",
        _ => match NOTES.iter().find(|(name, _)| path.ends_with(name)) {
            Some((_, notes)) => notes,
            None => return (json!({ "error": "`inputs/j/blob.bin` is a binary file, not text" }).to_string(), true),
        },
    };
    let number = |key: &str| arguments[key].as_u64().and_then(|number| usize::try_from(number).ok());
    let lines = text.split_inclusive('\n').skip(number("offset").unwrap_or(1) - 1);
    let text: String = lines.take(number("limit").unwrap_or(usize::MAX)).collect();
    (json!({ "content": text, "encoding": "utf-8" }).to_string(), false)
}

/// The reviewer's answer about a draft of sources of this size, and the review that it wrote.
async fn review(draft: &str, size: &str) -> (String, String) {
    let provider = Scripted::load(Path::new(SCRIPTS), ManualClock::at(0)).unwrap();
    let mut turn = request("subrosa", &MAIL.replace("SIZE", size));
    turn.agent_id = "subrosa".parse().unwrap();
    let mut written = String::new();
    for _ in 0..8 {
        let answer = provider.complete(&turn, &mut NoDeltas).await.unwrap();
        let mut calls = 0;
        for block in &answer.blocks {
            if let Block::ToolCall { name, arguments, .. } = block {
                calls += 1;
                if name == "workspace.write" {
                    written = arguments["content"].as_str().unwrap().to_owned();
                }
            }
        }
        if calls == 0 {
            return (said(&answer), written);
        }
        go_on(&mut turn, answer, |name, arguments| result(draft, name, arguments));
    }
    panic!("no end of\n{written}");
}

const SMALL: &str = "90";
const LARGE: &str = "90000";

#[tokio::test]
async fn what_was_read_is_approved_and_what_was_not_is_not() {
    for size in [SMALL, LARGE] {
        let (answer, review) = review(DRAFT, size).await;
        assert!(answer.starts_with("approve in part; approved are 3 of 4 inputs;"), "{answer}\n{review}");
        assert!(answer.contains("- 4. blob.bin: ") && !answer.contains("1. town.md"), "{answer}");
        assert!(review.contains("Inputs approved: 3 of 4\n\nVerdict: approve in part"), "{review}");
    }
}

#[tokio::test]
async fn a_figure_that_is_not_in_its_source_is_named_and_not_approved() {
    // The change to the draft, the input with the figure, and the figure that the review must name.
    for (from, to, input, named) in [
        ("**Town** — The town has 3,2", "**Town** — The town has 3,4", "1. town.md", "3,4"),
        ("- 1. town.md: The town has 3,2", "- 1. town.md: The town has 7,2", "1. town.md", "7,2"),
        ("| 2023 | 41 |", "| 2023 | 42 |", "1. town.md", "42"),
        ("… of 2 rows", "… of 5 rows", "1. town.md", "5"),
        ("| May | 88 |", "| May | 98 |", "2. sales.csv", "98"),
        ("Counted: 3 rows", "Counted: 88 rows", "2. sales.csv", "88 rows"),
        ("sum 267", "sum 266", "2. sales.csv", "266"),
        ("Counted: 3 lines, 1 ERROR", "Counted: 3 lines, 2 ERROR", "3. app.log", "2 ERROR"),
        ("at 12:00:09 (line 3)", "at 12:00:19 (line 3)", "3. app.log", "19"),
        ("Not read: 1.", "Not read: 0.", "summary", "totals"),
        ("Inputs: 4.", "99 inputs. Inputs: 4.", "summary", "totals"),
        (": not read: it is", ": it is", "4. blob.bin", "summary"),
        ("This input could not be read.", "It has 5 bytes.", "4. blob.bin", "summary"),
        ("## 4. blob.bin", "## 4. blob", "4. blob.bin", "heading"),
        ("## 4. blob.bin", "## More\n\nThere are 12.\n\n## 4. blob.bin", "summary", "sections"),
    ] {
        assert!(DRAFT.contains(from), "{from}");
        for size in [SMALL, LARGE] {
            let (answer, review) = review(&DRAFT.replacen(from, to, 1), size).await;
            let mut lines = answer.lines();
            assert!(lines.next().unwrap().starts_with("not approved; "), "{to}: {answer}\n{review}");
            let told = lines.any(|line| line.starts_with(&format!("- {input}: ")) && line.contains(named));
            assert!(told, "{to}: {answer}\n{review}");
        }
    }
}

/// A note that names the wrong line, or a figure that only the notes have: the source shows it.
#[tokio::test]
async fn a_figure_of_the_notes_that_is_not_at_its_line_is_not_approved() {
    let wrong = DRAFT.replacen("trees. (line 3)", "trees. (line 5)", 1);
    let (answer, _) = review(&wrong, SMALL).await;
    assert!(answer.starts_with("approve in part"), "a small source is looked at as a whole: {answer}");
    let (answer, review) = review(&wrong, LARGE).await;
    assert!(answer.contains("\n- 1. town.md: ") && answer.contains("3,2"), "{answer}\n{review}");
}
