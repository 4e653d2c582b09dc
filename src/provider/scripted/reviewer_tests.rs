//! The newsroom's reviewer searches the source of a draft for every figure of the draft. It names
//! each missing figure. It does not approve a draft whose source it could not read.

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
1. town.md
2. sales.csv
3. app.log
4. blob.bin
</inbox>";

const DRAFT: &str = "# Briefing of job 0123456789abcdef

Drafted by chora from the notes of the desk; not yet reviewed.

## Summary

Inputs: 4. Read: 3. Read in part: 0. Not read: 1.

- 1. town.md: The town has 3,2 Mio. trees.
- 2. sales.csv: A table with the columns month, tonnes.
- 3. app.log: A log from 12:00:00 to 12:00:09.
- 4. blob.bin: not read: it is a binary file, not text

## 1. town.md

**Town** — The town has 3,2 Mio. trees.

| year | birds |
| --- | --- |
| 2023 | 41 |

… of 2 rows

## 2. sales.csv

**sales** — A table with the columns month, tonnes.

Counted: 3 rows

| month | tonnes |
| --- | --- |
| May | 88 |

… of 3 rows

## 3. app.log

**app** — A log from 12:00:00 to 12:00:09.

Counted: 3 lines, 1 ERROR, 2 INFO

- 12:00:09 ERROR disk full

## 4. blob.bin

This input could not be read.
";

/// The results of the workspace tools for the sources.
fn result(draft: &str, name: &str, arguments: &Value) -> (String, bool) {
    let text = match arguments["path"].as_str().unwrap() {
        _ if name == "workspace.write" => return (json!({ "bytes": 1 }).to_string(), false),
        "output/reports/d.md" => draft,
        "inputs/j/town.md" => {
            "# Town\n\nThe town has 3,2 Mio. trees.\n\n| year | birds |\n|---|---|\n| 2023 | 41 |\n| 2024 | 43 |\n"
        }
        "inputs/j/sales.csv" => "month,tonnes\nMay,88\nJune,89\nJuly,90\n",
        "inputs/j/app.log" => "12:00:00 INFO up\n12:00:03 INFO on\n12:00:09 ERROR disk full\n",
        _ => return (json!({ "error": "`inputs/j/blob.bin` is a binary file, not text" }).to_string(), true),
    };
    (json!({ "content": text, "encoding": "utf-8" }).to_string(), false)
}

/// The reviewer's answer about a draft, and the review that it wrote.
async fn review(draft: &str) -> (String, String) {
    let provider = Scripted::load(Path::new(SCRIPTS), ManualClock::at(0)).unwrap();
    let mut turn = request("subrosa", MAIL);
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

#[tokio::test]
async fn what_was_read_is_approved_and_what_was_not_is_not() {
    let (answer, review) = review(DRAFT).await;
    assert!(answer.starts_with("approve in part; approved are 3 of 4 inputs;"), "{answer}\n{review}");
    assert!(answer.contains("- 4. blob.bin: ") && !answer.contains("1. town.md"), "{answer}");
    assert!(review.contains("Inputs approved: 3 of 4\n\nVerdict: approve in part"), "{review}");
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
        ("Counted: 3 rows", "Counted: 4 rows", "2. sales.csv", "4 rows"),
        ("3 lines, 1 ERROR", "3 lines, 2 ERROR", "3. app.log", "2 ERROR"),
        ("- 12:00:09 ERROR", "- 12:00:19 ERROR", "3. app.log", "19"),
        ("Not read: 1.", "Not read: 0.", "summary", "totals"),
        ("Inputs: 4.", "99 inputs. Inputs: 4.", "summary", "totals"),
        (": not read: it is", ": it is", "4. blob.bin", "summary"),
        ("This input could not be read.", "It has 5 bytes.", "4. blob.bin", "summary"),
        ("## 4. blob.bin", "## 4. blob", "4. blob.bin", "heading"),
        ("## 4. blob.bin", "## More\n\nThere are 12.\n\n## 4. blob.bin", "summary", "sections"),
    ] {
        assert!(DRAFT.contains(from), "{from}");
        let (answer, review) = review(&DRAFT.replacen(from, to, 1)).await;
        let mut lines = answer.lines();
        assert!(lines.next().unwrap().starts_with("not approved; "), "{to}: {answer}\n{review}");
        let told = lines.any(|line| line.starts_with(&format!("- {input}: ")) && line.contains(named));
        assert!(told, "{to}: {answer}\n{review}");
    }
}
