//! The main job of the newsroom: a folder of files becomes one briefing. Every file has its own heading in it, with
//! figures from the file. With any folder and with pages of the web, over any crash, with and without a sandbox, and with
//! models behind a real provider's protocol.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ghost_testkit::blackbox::{
    AHEAD, Daemon, Database, Deadline, ModelServer, ScriptedRoles, TestEnvironment, ghostd_testing,
};

const NEWSROOM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/worlds/newsroom");

fn test_env() -> TestEnvironment {
    TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"))
}

/// Waits for the end of the job. Returns the path of the briefing.
fn briefing(daemon: &Daemon) -> PathBuf {
    let line =
        daemon.wait_for_line("the end of the job", Deadline::seconds(120), |line| line.starts_with("  result  "));
    PathBuf::from(line.trim_start_matches("  result  "))
}

fn wait_for_a_parked_turn(test_env: &TestEnvironment) {
    Deadline::seconds(60).until("a parked turn", || {
        match test_env.json(&["turn", "list", "--status", "parked"]).as_array().map_or(0, Vec::len) {
            0 => Err("none".to_owned()),
            _ => Ok(()),
        }
    });
}

/// Waits until no turn goes on today: each is parked, or its agent waits for the answer of another. A turn at work would take a
/// clock that jumps ahead for its own time.
fn wait_until_none_goes_on(test_env: &TestEnvironment) {
    let mut seen = 0;
    Deadline::seconds(60).until("a world whose turns all wait", || {
        let parked = test_env.json(&["turn", "list", "--status", "parked"]).as_array().map_or(0, Vec::len) as u64;
        let status = test_env.json(&["status"]);
        let open = status["open_turns"].as_u64().unwrap();
        let asking = status["agents_by_activity"]["asking"].as_u64().unwrap_or(0);
        // Between two turns an agent has none, so one look is not enough.
        seen = if open == parked + asking { seen + 1 } else { 0 };
        if seen > 2 { Ok(()) } else { Err(format!("{parked} of {open} turns are parked, and {asking} agents ask")) }
    });
}

/// The files of a folder: relative name and text.
fn files(dir: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut queue = vec![dir.to_owned()];
    while let Some(at) = queue.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                queue.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                found.push((name, std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// The numbers in a text, as they are written.
fn numbers(text: &str) -> BTreeSet<&str> {
    let parts = text.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','));
    parts.map(|part| part.trim_matches(['.', ','])).filter(|part| !part.is_empty()).collect()
}

/// Asserts that every input has exactly one heading, and under it a figure from the input, if that has any.
fn check(briefing: &Path, input: &Path) {
    let text = std::fs::read_to_string(briefing).unwrap();
    let sections: Vec<(&str, &str)> =
        text.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap_or((section, ""))).collect();
    let mut used = BTreeSet::new();
    for (name, content) in files(input) {
        let own: Vec<usize> = sections
            .iter()
            .enumerate()
            .filter(|(_, (heading, _))| heading.split_once(". ").is_some_and(|(_, title)| title == name))
            .map(|(at, _)| at)
            .collect();
        assert_eq!(own.len(), 1, "headings of {name} in\n{text}");
        assert!(used.insert(own[0]), "{name} shares its heading");
        let body = sections[own[0]].1;
        let there = numbers(&content);
        if !there.is_empty() {
            assert!(numbers(body).intersection(&there).next().is_some(), "no figure of {name} in\n{body}");
        }
    }
}

// covers: WORLD-01, WORLD-16
#[test]
fn the_shipped_files_become_a_briefing_and_the_world_keeps_serving() {
    let test_env = test_env();
    let daemon = test_env.up(Path::new(NEWSROOM), &[]);
    let path = briefing(&daemon);
    check(&path, &Path::new(NEWSROOM).join("input"));
    assert!(path.starts_with(test_env.data("newsroom").canonicalize().unwrap().join("workspace/output/briefings")));
    daemon.wait_for_line("what it cost", Deadline::seconds(10), |line| line.starts_with("  cost    "));

    let status = test_env.json(&["status"]);
    assert_eq!(status["job"]["state"], "finished");
    assert_eq!(status["world_id"], "newsroom");
    test_env.wait_until_quiet(Deadline::seconds(60));
    // All six agents took part and none failed.
    let turns = test_env.json(&["turn", "list"]);
    let turns = turns.as_array().unwrap();
    let agents: BTreeSet<&str> = turns.iter().map(|turn| turn["agent_id"].as_str().unwrap()).collect();
    assert_eq!(agents, BTreeSet::from(["chora", "mux", "praxis", "primus", "subrosa", "thaum"]));
    for turn in turns {
        assert_eq!(turn["status"], "finished", "{turn}");
    }
    assert_eq!(test_env.json(&["dead", "list"]), serde_json::json!([]));
    daemon.stop();

    // If the briefing is gone, the next start reports it, and the command that it prints runs the
    // job again.
    std::fs::remove_file(&path).unwrap();
    let daemon = test_env.up(Path::new(NEWSROOM), &[]);
    let command = daemon.wait_for_line("what to do", Deadline::seconds(30), |line| line.contains("--reopen"));
    let task_id = command.split(' ').find(|word| word.len() == 36).expect("the id of the job's task");
    test_env.ctl(&["task", "update", task_id, "--status", "pending", "--reopen", "--note", "once more"]).ok();
    assert_eq!(briefing(&daemon), path);
    assert!(path.exists());
    daemon.stop();
}

// covers: MSG-10
#[test]
fn a_killed_daemon_finishes_the_same_job() {
    let test_env = test_env();
    let marks = [" is under way", " the task “", " has done “", " writes output/", " asks chora: "];
    for mark in marks {
        let daemon = test_env.up(Path::new(NEWSROOM), &[]);
        // Both are times for a kill: after the mark, or after the end of the job.
        let marks = [mark, " is done after", " was done before"];
        let _ = daemon.out.find(0, Deadline::seconds(60), |line| marks.iter().any(|mark| line.contains(mark)));
        daemon.kill();
    }
    let daemon = test_env.up(Path::new(NEWSROOM), &[]);
    if test_env.json(&["status"])["job"]["state"] != "finished" {
        briefing(&daemon);
    }
    test_env.wait_until_quiet(Deadline::seconds(120));
    assert_eq!(test_env.json(&["status"])["job"]["state"], "finished");
    daemon.stop();

    // The next start does not begin the finished job again.
    let daemon = test_env.up(Path::new(NEWSROOM), &[]);
    assert_eq!(test_env.json(&["status"])["job"]["state"], "finished");
    test_env.wait_until_quiet(Deadline::seconds(60));
    daemon.stop();

    let data = test_env.data("newsroom");
    let briefings: Vec<_> = std::fs::read_dir(data.join("workspace/output/briefings")).unwrap().collect();
    assert_eq!(briefings.len(), 1);
    check(&briefings[0].as_ref().unwrap().path(), &Path::new(NEWSROOM).join("input"));
    let database = Database::open(&data);
    assert_eq!(database.number("SELECT count(*) FROM jobs"), 1);
    assert_eq!(database.number("SELECT count(*) FROM dead_letters"), 0);
    // One task for each file, and one for the job.
    let inputs = i64::try_from(files(&Path::new(NEWSROOM).join("input")).len()).unwrap();
    assert_eq!(database.number("SELECT count(*) FROM tasks WHERE parent_id IS NOT NULL"), inputs);
    assert_eq!(database.number("SELECT count(*) FROM tasks WHERE ended = 0"), 0);
}

/// Runs the job on a folder with these files and checks its briefing.
fn own_folder(files: &[(&str, &str)]) {
    let test_env = test_env();
    let input = test_env.join("my files");
    for (name, text) in files {
        let path = input.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let daemon = test_env.up(Path::new(NEWSROOM), &["--input", input.to_str().unwrap()]);
    check(&briefing(&daemon), &input);
    daemon.stop();
}

/// A text of this many bytes, with a figure in each line.
fn long_text(title: &str, bytes: usize) -> String {
    let mut text = format!("# {title}\n\n");
    for n in 1.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(&format!("Gauge {title}{n} stood at {} mm in the night.\n", 1_000 + n * 7));
    }
    text
}

#[test]
fn long_files_take_several_reads_and_unread_parts_are_reported() {
    let test_env = test_env();
    let input = test_env.join("long");
    std::fs::create_dir(&input).unwrap();
    let write = |name: &str, text: &str| std::fs::write(input.join(name), text).unwrap();
    write("hundred.md", &long_text("H", 100_000));
    write("seven-hundred.txt", &long_text("S", 700_000));
    write("beyond.md", &long_text("B", 1_200_000));
    // One file is a single line, and one has no space at all. One has a figure only at its end.
    let line: Vec<String> = (0..6_000).map(|n| format!("Item {n} costs {} euros.", 5 + n * 3)).collect();
    write("line.txt", &line.join(" "));
    let list: Vec<String> = (0..20_000).map(|n| (n * n).to_string()).collect();
    write("list.json", &format!("[{}]", list.join(";")));
    write("late.txt", &format!("{}\nIn the end there were 4,711 of them.\n", "Nothing to count yet.\n".repeat(5_000)));
    write("none.txt", &"There is nothing to count in here.\n".repeat(3_000));
    write("short.md", "\u{feff}# Short\n\nThe mill ground 412 tonnes.\n");
    let daemon = test_env.up(Path::new(NEWSROOM), &["--input", input.to_str().unwrap()]);
    let path = briefing(&daemon);
    check(&path, &input);
    daemon.stop();

    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains("Approved: 7 of 8 inputs.") && !text.contains("approved by subrosa"), "{text}");
    assert!(text.contains("Inputs: 8. Read: 7. Read in part: 1. Not read: 0.\n"), "{text}");
    assert!(!text.contains("could not be read"), "{text}");
    let headed = |section: &&str, name: &str| section.lines().next().is_some_and(|title| title.ends_with(name));
    let section = |name: &str| text.split("\n## ").find(|section| headed(section, name)).unwrap();
    // The figures come from the whole file, not only from the first read.
    let last = |name: &str, title: &str| {
        let mark = format!("Gauge {title}");
        let gauges = section(name).split(&mark).skip(1);
        gauges.filter_map(|rest| rest.split(' ').next()?.parse::<u32>().ok()).max().unwrap()
    };
    assert!(last("seven-hundred.txt", "S") > 12_000, "{text}");
    assert!(last("hundred.md", "H") > 1_700, "{text}");
    assert!(section("late.txt").contains("4,711"), "{text}");
    assert!(section("none.txt").contains("No figures in this input."), "{text}");
    assert!(section("short.md").contains("**Short**"), "{text}");
    let read = "lines of it were read: with 12000";
    assert!(section("beyond.md").contains(read) && text.matches("Only the first").count() == 1, "{text}");
}

/// The section of a briefing under a heading.
fn section<'t>(text: &'t str, heading: &str) -> &'t str {
    let sections = text.split("\n## ").filter_map(|section| section.split_once('\n'));
    sections
        .filter(|(title, _)| *title == heading)
        .map(|(_, body)| body)
        .next()
        .unwrap_or_else(|| panic!("{heading}\n{text}"))
}

#[test]
fn real_files_are_read_by_their_format_and_unreadable_ones_are_not_approved() {
    let test_env = test_env();
    let input = test_env.join("real");
    std::fs::create_dir(&input).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(input.join(name), bytes).unwrap();
    write("1-rat.txt", "Der Rat tagte am 3. Mai in Bonn und gab 3,2 Mio. Euro frei. Danach ging er heim.\n".as_bytes());
    write("2-latin.txt", b"M\xfcnchen z\xe4hlte 1.204 B\xe4ume.\n");
    let wide = "\u{feff}Der Turm ist 93 Meter hoch.\n".encode_utf16();
    write("3-wide.txt", &wide.flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
    let rows: String = (1..=40).map(|n| format!("Mill {n};{},5;\"flour; rye\"\n", 100 + n)).collect();
    write("4-mills.csv", format!("mill;tonnes;note\n{rows}").as_bytes());
    write("5-table.md", b"# Rain\n\nIt rained a lot.\n\n| month | mm |\n|---|---|\n| May | 88 |\n| June | 91 |\n");
    let lines: String = (0..3_000)
        .map(|n| {
            format!(
                "2024-05-01 {:02}:{:02}:00 {}\n",
                n / 60 % 24,
                n % 60,
                if n % 100 == 7 { "ERROR disk full" } else { "INFO fine" }
            )
        })
        .collect();
    write("6-app.log", lines.as_bytes());
    write("7-blob.bin", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0 12345");
    write("8-small.pdf", b"%PDF-1.4\n1 0 obj << /Length 44 >> stream BT (Hello 7) Tj ET endstream\n");
    let entries: Vec<String> = (0..50)
        .map(|n| format!("{{\"id\": {n}, \"state\": \"{}\", \"mm\": {n}.5}}", if n % 5 == 0 { "shut" } else { "open" }))
        .collect();
    write("9-gauges.json", format!("{{\"gauges\": [{}]}}", entries.join(",\n")).as_bytes());
    write("a-page.html", PAGE.as_bytes());
    write(".secret", b"a password: 99\n");
    std::os::unix::fs::symlink("1-rat.txt", input.join("link.txt")).unwrap();
    let daemon = test_env.up(Path::new(NEWSROOM), &["--input", input.to_str().unwrap()]);
    let path = briefing(&daemon);
    test_env.wait_until_quiet(Deadline::seconds(60));
    for turn in test_env.json(&["turn", "list"]).as_array().unwrap() {
        assert_eq!(turn["status"], "finished", "{turn}");
    }
    daemon.stop();

    let text = std::fs::read_to_string(path).unwrap();
    let summary = section(&text, "Summary");
    assert!(text.find("## Summary") < text.find("## 1. "), "{text}");
    assert!(summary.contains("Inputs: 10. Read: 8. Read in part: 0. Not read: 2.\n"), "{text}");
    assert_eq!(summary.lines().filter(|line| line.starts_with("- ")).count(), 10, "{text}");
    assert!(summary.contains("- 7. 7-blob.bin: not read: "), "{text}");
    let pdf = summary.lines().find(|line| line.starts_with("- 8. 8-small.pdf: not read: "));
    assert!(
        pdf.is_some_and(|line| line.contains("PDF")) && !section(&text, "8. 8-small.pdf").contains("Hello"),
        "{text}"
    );
    let head = text.split("\n## ").next().unwrap();
    assert!(head.contains(".secret") && head.contains("link.txt") && !text.contains("password"), "{text}");
    // Only files that were read are approved.
    assert!(text.contains("Approved: 8 of 10 inputs.") && !text.contains("approved by subrosa"), "{text}");
    assert!(section(&text, "Not approved").contains("- 7. 7-blob.bin: "), "{text}");
    let whole = "am 3. Mai in Bonn und gab 3,2 Mio. Euro frei.";
    assert!(summary.contains(whole) && section(&text, "1. 1-rat.txt").contains(whole), "{text}");
    let latin = section(&text, "2. 2-latin.txt");
    assert!(latin.contains("München zählte 1.204 Bäume.") && latin.contains("Encoding: windows-1252\n"), "{text}");
    let wide = section(&text, "3. 3-wide.txt");
    assert!(wide.contains("Der Turm ist 93 Meter hoch.") && wide.contains("Encoding: utf-16le\n"), "{text}");
    let mills = section(&text, "4. 4-mills.csv");
    assert!(
        mills.contains("| mill | tonnes | note |\n| --- | --- | --- |\n| Mill 1 | 101,5 | flour; rye |\n"),
        "{text}"
    );
    assert!(mills.contains("Counted: 40 rows\n") && mills.contains("… of 40 rows\n"), "{text}");
    assert!(mills.contains("\n- tonnes: 40 numbers, sum 4840, from 101,5 to 140,5\n"), "{text}");
    assert!(
        section(&text, "5. 5-table.md").contains("| month | mm |\n| --- | --- |\n| May | 88 |\n| June | 91 |\n"),
        "{text}"
    );
    let log = section(&text, "6. 6-app.log");
    assert!(log.contains("Counted: 3000 lines, 30 ERROR, 2970 INFO\n"), "{text}");
    assert!(log.contains("from 2024-05-01 00:00:00 to 2024-05-01 01:59:00"), "{text}");
    let error = "- 30 × ERROR disk full, from 2024-05-01 00:07:00 to 2024-05-01 00:27:00 (line 8)\n";
    let others = "- 2970 × INFO fine, from 2024-05-01 00:00:00 to 2024-05-01 01:59:00 (line 1)\n";
    assert!(log.find(error).zip(log.find(others)).is_some_and(|(error, others)| error < others), "{text}");
    let gauges = section(&text, "9. 9-gauges.json");
    for fact in [
        "gauges: 50 entries",
        "gauges[].id: 50 numbers, from 0 to 49",
        "gauges[].state: 50 values; open 40; shut 10",
        "gauges[].mm: 50 numbers, sum 1250, from 0.5 to 49.5",
    ] {
        assert!(gauges.contains(&format!("\n- {fact}\n")), "{fact} in\n{text}");
    }
    let page = section(&text, "10. a-page.html");
    assert!(page.contains("**Tides 1887**") && page.contains("4,711 mm") && !page.contains('<'), "{text}");
}

#[test]
fn one_file_is_a_job() {
    own_folder(&[("only.md", "# Only\n\nThe mill ground 412 tonnes of rye in March.\n")]);
}

#[test]
fn a_folder_with_odd_names_empty_files_and_subfolders_is_a_job() {
    own_folder(&[
        ("a b c.md", "We counted 77 swans on the lake.\n"),
        ("Ünïcode – façade.txt", "Der Turm ist 93 Meter hoch.\n"),
        ("empty.md", ""),
        ("no figures.md", "Nothing to count here, only words.\n"),
        ("deep/er/notes.md", "# Notes\n\nThe pump ran for 31 hours.\n"),
        ("it's (a) [test] & more.txt", "Cost: 1,204 euros & <tags> to spare.\n"),
        ("no-ending", "The archive holds 8,812 letters.\n"),
    ]);
}

#[test]
fn twelve_files_are_a_job() {
    let texts: Vec<(String, String)> = (1..=12)
        .map(|n| {
            (format!("report-{n:02}.md"), format!("# Report {n}\n\nStation {n} measured {} mm of rain.\n", 100 + n * 7))
        })
        .collect();
    let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    own_folder(&texts);
}

#[test]
fn an_invalid_input_is_refused_and_nothing_starts() {
    let test_env = test_env();
    let missing = test_env.join("missing");
    let ran = test_env.ghostd(&["up", NEWSROOM, "--input", missing.to_str().unwrap()]);
    ran.exits(3).says(&["missing", "--input"]);
    let large = test_env.join("large");
    std::fs::create_dir(&large).unwrap();
    std::fs::write(large.join("large.md"), vec![b'7'; 9 * 1024 * 1024]).unwrap();
    test_env
        .ghostd(&["up", NEWSROOM, "--input", large.to_str().unwrap()])
        .exits(8)
        .says(&["large.md", "limits.job_bytes"]);
    let empty = test_env.join("empty");
    std::fs::create_dir(&empty).unwrap();
    test_env.ghostd(&["up", NEWSROOM, "--input", empty.to_str().unwrap()]).exits(2).says(&["empty"]);
    assert!(!test_env.data("newsroom").exists(), "nothing was begun for it");
    std::fs::write(empty.join("now.md"), "There are 5 of them.\n").unwrap();
    let daemon = test_env.up(Path::new(NEWSROOM), &["--input", empty.to_str().unwrap()]);
    check(&briefing(&daemon), &empty);
    daemon.stop();
}

// covers: LOOP-05
#[test]
fn the_job_is_done_by_models_behind_a_providers_protocol() {
    let test_env = test_env();
    let roles = ScriptedRoles::load(&Path::new(NEWSROOM).join("scripts"));
    let server = ModelServer::start(move |request, _| roles.answer(request));
    let url = server.base_url();
    let args = ["--provider", "openai", "--model", "gpt-local", "--base-url", &url];
    let daemon = test_env.up(Path::new(NEWSROOM), &args);
    check(&briefing(&daemon), &Path::new(NEWSROOM).join("input"));
    test_env.wait_until_quiet(Deadline::seconds(60));
    let agents: BTreeSet<String> = server.asked().into_iter().map(|asked| asked.agent).collect();
    assert_eq!(agents.len(), 6, "{agents:?}");
    let turns = test_env.json(&["turn", "list"]);
    for turn in turns.as_array().unwrap() {
        assert_eq!(turn["status"], "finished", "{turn}");
        assert_eq!(turn["model"], "gpt-local");
    }
    daemon.stop();
}

/// Copies the newsroom with another budget and with models that cost something. Scripted models cost nothing.
fn costly(text: &str, budget: (&str, &str)) -> String {
    const LLM: &str = "    scripted: { kind: scripted, dir: scripts }\n";
    assert!(text.contains(LLM) && text.contains(budget.0), "the models, and the world's own budget");
    let models = ["primus", "chora", "thaum", "praxis", "mux", "subrosa"];
    let prices: String =
        models.iter().map(|model| format!("    scripted/{model}: {{ input: 1, output: 1 }}\n")).collect();
    text.replace(budget.0, budget.1).replace(LLM, &format!("{LLM}  prices:\n{prices}"))
}

#[test]
fn a_job_that_waits_for_a_budget_continues_when_it_is_raised() {
    let test_env = test_env();
    let world = test_env.copy_of(Path::new(NEWSROOM), "newsroom");
    let file = world.join("world-config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, costly(&text, ("200_000_000", "100_000"))).unwrap();
    let daemon = test_env.up(&world, &[]);
    wait_for_a_parked_turn(&test_env);
    test_env.ctl(&["budget", "set", "world", "--tokens", "none"]).ok();
    check(&briefing(&daemon), &world.join("input"));
    daemon.stop();
}

#[test]
fn a_job_that_waits_for_a_daily_budget_continues_the_next_day() {
    let mut test_env = TestEnvironment::new(ghostd_testing());
    let ahead = test_env.join("ahead");
    test_env.set(AHEAD, &ahead);
    let world = test_env.copy_of(Path::new(NEWSROOM), "newsroom");
    let file = world.join("world-config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, costly(&text, ("tokens: 200_000_000", "tokens_per_day: 200_000"))).unwrap();
    let daemon = test_env.up(&world, &[]);
    // How many turns fit into a day is not checked. Only the time of day changes.
    let (mut days, mut from) = (0_u64, 0);
    loop {
        let wanted = |line: &str| line.contains(" waits: ") || line.starts_with("  result  ");
        let (at, line) = daemon.out.find(from, Deadline::seconds(120), wanted).expect("a parked turn, or the end");
        if line.starts_with("  result  ") {
            break;
        }
        assert!(line.contains("world/day"), "{line}");
        wait_until_none_goes_on(&test_env);
        days += 1;
        assert!(days < 60, "a day brings it no further");
        // Written by a rename, because the daemon would read an empty file as 0 ms.
        let next = test_env.join("ahead.next");
        std::fs::write(&next, (days * 86_400_000).to_string()).unwrap();
        std::fs::rename(&next, &ahead).unwrap();
        from = at + 1;
    }
    assert!(days > 0, "a day was enough");
    check(&briefing(&daemon), &world.join("input"));
    daemon.stop();
}

#[test]
fn a_job_whose_provider_was_down_continues_after_a_restart() {
    let test_env = test_env();
    let away = ["--provider", "openai", "--model", "any", "--base-url", "http://127.0.0.1:1/v1"];
    let daemon = test_env.up(Path::new(NEWSROOM), &away);
    wait_for_a_parked_turn(&test_env);
    daemon.stop();
    let daemon = test_env.up(Path::new(NEWSROOM), &[]);
    check(&briefing(&daemon), &Path::new(NEWSROOM).join("input"));
    let jobs = test_env.json(&["status"]);
    assert_eq!(jobs["job"]["state"], "finished");
    daemon.stop();
}

/// Copies the newsroom with pieces of one of its files replaced.
fn changed(test_env: &TestEnvironment, file: &str, changes: &[(&str, &str)]) -> PathBuf {
    let world = test_env.copy_of(Path::new(NEWSROOM), "newsroom");
    change(&world, file, changes);
    world
}

fn change(world: &Path, file: &str, changes: &[(&str, &str)]) {
    let file = world.join(file);
    let mut text = std::fs::read_to_string(&file).unwrap();
    for (from, to) in changes {
        assert_eq!(text.matches(from).count(), 1, "{from} in {}", file.display());
        text = text.replace(from, to);
    }
    std::fs::write(&file, text).unwrap();
}

/// A folder with these files.
fn folder(test_env: &TestEnvironment, files: &[(&str, &str)]) -> PathBuf {
    let input = test_env.join("input");
    std::fs::create_dir(&input).unwrap();
    for (name, text) in files {
        std::fs::write(input.join(name), text).unwrap();
    }
    input
}

/// The line of a briefing that says how its figures were checked.
fn figures_line(text: &str) -> &str {
    let head = text.split("\n## ").next().unwrap();
    head.lines().find(|line| line.starts_with("Figures: ")).unwrap_or_else(|| panic!("no such line in\n{text}"))
}

/// A server of pages on this machine. `/page` is a page, `/once` the same, but never answered the first time.
struct Pages {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

const PAGE: &str = "<html><head><title>Tides 1887</title></head><body><h1>Tides</h1>\
    <p>The gauge stood at 4,711 mm on 3 May.</p>\
    <table><tr><th>month</th><th>mm</th></tr><tr><td>May</td><td>88</td></tr></table></body></html>";

impl Pages {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&asked);
        // The threads end with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, log) = (stream.unwrap(), Arc::clone(&log));
                std::thread::spawn(move || serve(stream, &log));
            }
        });
        Self { address, asked }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How often a path was asked for.
    fn asked(&self, path: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| *asked == path).count()
    }

    /// The `web` section with which agents may fetch from it.
    fn allowed(&self) -> String {
        format!("\nweb: {{ allow: ['{}'] }}\n", self.address)
    }
}

fn serve(mut stream: TcpStream, log: &Mutex<Vec<String>>) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4_096];
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => bytes.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let path = String::from_utf8_lossy(&bytes).split(' ').nth(1).unwrap_or_default().to_owned();
    let first = {
        let mut asked = log.lock().unwrap();
        asked.push(path.clone());
        asked.iter().filter(|earlier| **earlier == path).count() == 1
    };
    if path == "/once" && first {
        // Until the other side closes.
        let _ = stream.read_to_end(&mut Vec::new());
        return;
    }
    let huge = "swans ".repeat(if path == "/huge" { 1 << 20 } else { 0 });
    let (status, body) = match path.as_str() {
        "/page" | "/once" => ("200 OK".to_owned(), PAGE),
        "/huge" => ("200 OK".to_owned(), huge.as_str()),
        // The rest of the path is where it leads.
        away if away.starts_with("/to/") => (format!("302 Found\r\nLocation: {}", &away["/to/".len()..]), ""),
        _ => ("404 Not Found".to_owned(), "<p>There are 404 other pages.</p>"),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(answer.as_bytes());
}

const WEB: &str = "\nweb: {}\n";
const PLAIN: (&str, &str) = ("plain.md", "We counted 77 swans on the lake.\n");

// covers: BI-13
#[test]
fn a_page_is_an_input_that_mux_fetches_and_the_reviewer_checks() {
    let test_env = test_env();
    let pages = Pages::start();
    let world = changed(&test_env, "world-config.yaml", &[(WEB, pages.allowed().as_str())]);
    // An address alone, the shortcut of a browser, and a page that is not there.
    let shortcut = format!("[InternetShortcut]\r\nURL={}\r\n", pages.url("/page"));
    let (page, gone) = (pages.url("/page"), pages.url("/gone"));
    let files = [("gone.url", gone.as_str()), PLAIN, ("tides.url", page.as_str()), ("way.URL", shortcut.as_str())];
    let input = folder(&test_env, &files);
    let daemon = test_env.up(&world, &["--input", input.to_str().unwrap()]);
    let path = briefing(&daemon);
    test_env.wait_until_quiet(Deadline::seconds(60));
    for turn in test_env.json(&["turn", "list"]).as_array().unwrap() {
        assert_eq!(turn["status"], "finished", "{turn}");
    }
    daemon.stop();

    let text = std::fs::read_to_string(&path).unwrap();
    let summary = section(&text, "Summary");
    assert!(summary.contains("Inputs: 4. Read: 3. Read in part: 0. Not read: 1.\n"), "{text}");
    let gone = summary.lines().find(|line| line.starts_with("- 1. gone.url: not read: ")).expect("a line on it");
    assert!(gone.contains("404"), "{text}");
    assert!(text.contains("Approved: 3 of 4 inputs."), "{text}");
    for heading in ["3. tides.url", "4. way.URL"] {
        let tides = section(&text, heading);
        assert!(tides.contains(&format!("Address: {page}\n")), "{text}");
        assert!(tides.contains("**Tides**") && tides.contains("4,711 mm"), "{text}");
        assert!(tides.contains("| month | mm |\n| --- | --- |\n| May | 88 |\n"), "{text}");
    }
    // The reviewer's source is the page as mux saved it.
    let job = path.file_stem().unwrap().to_str().unwrap();
    let saved = test_env.data("newsroom").join("workspace/agents/mux/pages").join(job);
    assert!(std::fs::read_to_string(saved.join("3.md")).unwrap().contains("4,711 mm"));
    assert!(!saved.join("1.md").exists(), "the answer of a server that has no page is not a page");
}

#[test]
fn a_page_that_cannot_be_fetched_is_named_as_not_read_with_the_reason() {
    // Without the section, and with one that does not allow the address.
    for (web, why) in [("\n", "web"), (WEB, "loopback")] {
        let test_env = test_env();
        let pages = Pages::start();
        let world = changed(&test_env, "world-config.yaml", &[(WEB, web)]);
        let input = folder(&test_env, &[PLAIN, ("tides.url", pages.url("/page").as_str())]);
        let daemon = test_env.up(&world, &["--input", input.to_str().unwrap()]);
        let path = briefing(&daemon);
        daemon.stop();
        let text = std::fs::read_to_string(path).unwrap();
        let line = section(&text, "Summary").lines().find(|line| line.starts_with("- 2. tides.url: not read: "));
        assert!(line.is_some_and(|line| line.contains(why)), "{why} in {text}");
        assert!(section(&text, "2. tides.url").contains("This input could not be read.\n"), "{text}");
        assert!(section(&text, "Not approved").contains("- 2. tides.url: "), "{text}");
        assert!(text.contains("Approved: 1 of 2 inputs."), "{text}");
        assert_eq!(pages.asked("/page"), 0);
    }
}

/// Whoever gives the input writes the addresses, and whoever has a page says where it leads.
// covers: BI-13b
#[test]
fn an_address_that_leads_inside_is_an_input_that_could_not_be_read() {
    let test_env = test_env();
    let pages = Pages::start();
    let inside = TcpListener::bind("127.0.0.2:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let private = format!("http://{}/page", inside.local_addr().unwrap());
    let secret = test_env.join("secret");
    std::fs::write(&secret, "We counted 90210 secrets.\n").unwrap();
    let file = format!("file://{}", secret.display());
    let port = pages.address.port();
    let addresses = [
        private.clone(),
        pages.url(&format!("/to/{private}")),
        pages.url(&format!("/to/{}", pages.url(&format!("/to/{private}")))),
        pages.url(&format!("/to/{file}")),
        pages.url("/to/http://169.254.169.254/latest/meta-data/"),
        pages.url("/huge"),
        file.clone(),
        secret.display().to_string(),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://[::ffff:10.0.0.1]/".to_owned(),
        format!("http://u:p@127.0.0.1:{port}/page"),
        format!("http://127.0.0.1:{}/", if port == 1 { 2 } else { 1 }),
        "gopher://127.0.0.1/".to_owned(),
        format!("[InternetShortcut]\r\nURL={file}\r\nIconFile={private}\r\n"),
        String::from("\n"),
    ];
    let names: Vec<String> = (10..).take(addresses.len()).map(|n| format!("{n}.url")).collect();
    let files = names.iter().map(String::as_str).zip(addresses.iter().map(String::as_str));
    let input = folder(&test_env, &files.chain([PLAIN]).collect::<Vec<_>>());
    std::os::unix::fs::symlink(&secret, input.join("link.url")).unwrap();
    let world = changed(&test_env, "world-config.yaml", &[(WEB, pages.allowed().as_str())]);
    let daemon = test_env.up(&world, &["--input", input.to_str().unwrap()]);
    let path = briefing(&daemon);
    daemon.stop();
    let text = std::fs::read_to_string(&path).unwrap();
    let counted =
        format!("Inputs: {}. Read: 1. Read in part: 0. Not read: {}.\n", addresses.len() + 1, addresses.len());
    assert!(section(&text, "Summary").contains(&counted), "{text}");
    assert!(text.contains("link.url") && !text.contains("90210"), "{text}");
    let pages_of = test_env.data("newsroom").join("workspace/agents/mux/pages");
    assert!(!pages_of.exists(), "no page was saved");
    assert!(inside.accept().is_err(), "nobody connected");
    assert_eq!(pages.asked("/page"), 0);
}

// covers: MSG-10
#[test]
fn a_daemon_that_is_killed_during_a_fetch_fetches_the_page_again() {
    let test_env = test_env();
    let pages = Pages::start();
    let world = changed(&test_env, "world-config.yaml", &[(WEB, pages.allowed().as_str())]);
    let input = folder(&test_env, &[("tides.url", pages.url("/once").as_str())]);
    let args = ["--input", input.to_str().unwrap()];
    let daemon = test_env.up(&world, &args);
    Deadline::seconds(60).until("the first request", || match pages.asked("/once") {
        0 => Err("none".to_owned()),
        _ => Ok(()),
    });
    daemon.kill();
    let daemon = test_env.up(&world, &args);
    let text = std::fs::read_to_string(briefing(&daemon)).unwrap();
    daemon.stop();
    assert!(section(&text, "1. tides.url").contains("4,711 mm"), "{text}");
    assert_eq!(pages.asked("/once"), 2);
}

/// Starts a world whose commands run in the `local` sandbox. `None`, with the reason on standard error, if this machine
/// has no sandbox and none is required.
fn sandboxed(test_env: &TestEnvironment, world: &Path, input: &Path) -> Option<Daemon> {
    // If the tests run as root, commands are another user, who must reach the workspace.
    for dir in [test_env.path().to_owned(), test_env.join("state")] {
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let daemon = test_env.up(world, &["--input", input.to_str().unwrap()]);
    let Some(why) = test_env.json(&["status"])["sandbox"]["absent"].as_str().map(str::to_owned) else {
        return Some(daemon);
    };
    assert!(std::env::var("GHOST_SANDBOX").is_err(), "GHOST_SANDBOX=required: {why}");
    #[allow(clippy::print_stderr, reason = "a skipped test says so")]
    {
        eprintln!("skipped: {why}");
    }
    None
}

// covers: BI-12
#[test]
fn figures_are_checked_with_python_in_the_sandbox() {
    let test_env = test_env();
    let world = test_env.copy_of(Path::new(NEWSROOM), "newsroom");
    let rows: String = (1..=40).map(|n| format!("Mill {n};{},5\n", 100 + n)).collect();
    let mills = format!("mill;tonnes\n{rows}");
    let input = folder(&test_env, &[("mills.csv", mills.as_str()), PLAIN]);
    std::fs::write(input.join("latin.txt"), b"M\xfcnchen z\xe4hlte 1.204 B\xe4ume.\n").unwrap();
    let Some(daemon) = sandboxed(&test_env, &world, &input) else { return };
    let text = std::fs::read_to_string(briefing(&daemon)).unwrap();
    daemon.stop();
    let line = figures_line(&text);
    // The rows of the table are counted twice, in its tally and below its first rows; one column has a sum.
    assert!(line.contains("praxis") && line.contains("Python") && line.contains("Inputs: 3."), "{text}");
    assert!(line.contains(" again: 3.") && line.ends_with("Not found: 0."), "{text}");
    assert!(text.contains("reviewed and approved by subrosa"), "{text}");
    let database = Database::open(&test_env.data("newsroom"));
    assert_eq!(database.number("SELECT count(*) FROM ledger WHERE tool = 'tool.python' AND status = 'ok'"), 1);
}

#[test]
fn a_figure_that_python_does_not_find_is_named() {
    let test_env = test_env();
    // A draft that has more in each section than the notes.
    let wrong = ("            {{ out.table }}\n", "            {{ out.table }}\n\n            - Wrong: 987,654.\n");
    let world = changed(&test_env, "scripts/chora.yaml", &[wrong]);
    let input = folder(&test_env, &[PLAIN]);
    let Some(daemon) = sandboxed(&test_env, &world, &input) else { return };
    let text = std::fs::read_to_string(briefing(&daemon)).unwrap();
    daemon.stop();
    assert!(figures_line(&text).ends_with("Not found: 1."), "{text}");
    let head = text.split("\n## ").next().unwrap();
    assert!(head.contains("\n- 1. plain.md: 987,654\n"), "{text}");
    assert!(text.contains("WITHOUT an approval"), "{text}");
}

/// What a briefing counts is computed from the files, in every kind of them.
#[test]
fn a_sum_or_count_that_is_wrong_is_found_by_python() {
    let test_env = test_env();
    // In each fact of the draft, all digits are wrong.
    let wrong = (
        "            - {{ fact }}\n            {% endfor %}\n            {{ out",
        "            - {{ fact | regex_replace(vars.digit, '8') }}\n            {% endfor %}\n            {{ out",
    );
    let world = changed(&test_env, "scripts/chora.yaml", &[wrong]);
    let log: String = (0..9).map(|n| format!("2024-05-01 12:00:0{n} INFO at {n}\n")).collect();
    let files = [
        ("a.csv", "day;tonnes;kind\n2024-05-01;1.5;rye\n2024-05-02;2;rye\n2024-05-03;4;oats\n"),
        ("b.log", log.as_str()),
        ("c.json", "[{\"kind\": \"a\", \"mm\": 7}, {\"kind\": \"a\", \"mm\": 8}]"),
    ];
    let input = folder(&test_env, &files);
    let Some(daemon) = sandboxed(&test_env, &world, &input) else { return };
    let text = std::fs::read_to_string(briefing(&daemon)).unwrap();
    daemon.stop();
    // Three columns, one message, the array, two values. The sandbox cannot be told a figure: it has the files.
    assert!(figures_line(&text).ends_with("Not found: 7."), "{text}");
}

/// A text of a table, a log, JSON and HTML of about this size each.
fn large_files(bytes: usize) -> Vec<(&'static str, String)> {
    let grown = |line: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for n in 0.. {
            if text.len() >= bytes {
                break;
            }
            text.push_str(&line(n));
        }
        text
    };
    let json =
        grown(&|n| format!(" {{\"id\": {n}, \"state\": \"{}\", \"mm\": {}}},\n", ["open", "shut"][n % 2], n % 977));
    let html =
        grown(&|n| format!("<h2>Gauge {n}</h2><p class=\"c{n}\">It stood at {} mm in the night.</p>\n", n * 7 % 4_001));
    vec![
        (
            "app.log",
            grown(&|n| {
                format!(
                    "2024-05-01 {:02}:{:02}:00 {} took {n} ms\n",
                    n / 60 % 24,
                    n % 60,
                    if n % 9 == 0 { "ERROR it" } else { "INFO it" }
                )
            }),
        ),
        ("page.html", format!("<html><head><title>Gauges</title></head><body>\n{html}</body></html>\n")),
        ("report.md", long_text("R", bytes)),
        (
            "sales.csv",
            format!(
                "day,region,units\n{}",
                grown(&|n| format!("2024-05-{:02},{},{}\n", n % 28 + 1, ["north", "south"][n % 2], n % 90))
            ),
        ),
        ("stations.json", format!("[\n{}]\n", json.trim_end_matches(",\n"))),
        ("talk.txt", long_text("T", bytes)),
    ]
}

/// Each part of a file is sent once, and what follows works with the notes.
#[test]
fn the_input_of_the_models_is_at_most_three_times_that_of_the_files() {
    let test_env = test_env();
    let files = large_files(300_000);
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let input = folder(&test_env, &files);
    let daemon = test_env.up(Path::new(NEWSROOM), &["--input", input.to_str().unwrap()]);
    let path = briefing(&daemon);
    check(&path, &input);
    test_env.wait_until_quiet(Deadline::seconds(60));
    daemon.stop();
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains("reviewed and approved by subrosa"), "{text}");
    let own: usize = files.iter().map(|(_, text)| text.len()).sum();
    // A token is three bytes, as in budgets.
    let bound = i64::try_from(own).unwrap();
    let taken = Database::open(&test_env.data("newsroom")).number("SELECT sum(input) FROM usage");
    assert!(taken <= bound, "{taken} input tokens for {} of the files", own / 3);
}

/// Before the first call of a run that is paid for, the daemon says what it expects, and what is left of the budgets.
#[test]
fn a_job_that_is_paid_for_is_announced_with_its_budgets() {
    let test_env = test_env();
    let world = test_env.copy_of(Path::new(NEWSROOM), "newsroom");
    let file = world.join("world-config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, costly(&text, ("tokens: 200_000_000", "tokens: 100_000, usd: 5"))).unwrap();
    let daemon = test_env.up(&world, &[]);
    let (expects, line) =
        daemon.out.find(0, Deadline::seconds(30), |line| line.starts_with("  expects ")).expect("what it expects");
    let bytes: usize = files(&world.join("input")).iter().map(|(_, text)| text.len().div_ceil(3)).sum();
    assert!(line.contains(&format!(" {bytes}")) && line.contains('$'), "{line}");
    let (_, world_budget) =
        daemon.out.find(expects, Deadline::seconds(30), |line| line.starts_with("  budget  world: ")).unwrap();
    assert!(world_budget.contains("100000 tokens and $5.00 left;"), "{world_budget}");
    let (_, root) =
        daemon.out.find(expects, Deadline::seconds(30), |line| line.starts_with("  budget  the job: ")).unwrap();
    assert!(root.contains("2000000 tokens left"), "{root}");
    let (begun, _) = daemon.out.find(0, Deadline::seconds(30), |line| line.contains(" is under way")).unwrap();
    assert!(expects < begun);
    daemon.stop();
    // Free models are not announced.
    let daemon = test_env.up(Path::new(NEWSROOM), &["--data", test_env.join("free").to_str().unwrap()]);
    daemon.wait_for_line("the job", Deadline::seconds(30), |line| line.contains(" is under way"));
    assert!(daemon.out.find(0, Deadline::seconds(0), |line| line.starts_with("  expects ")).is_none());
    daemon.stop();
}

#[test]
fn without_a_sandbox_the_built_in_look_up_checks_alone_and_the_briefing_says_so() {
    let test_env = test_env();
    let kind = ("\nsandbox: { kind: local }\n", "\nsandbox: { kind: none }\n");
    let world = changed(&test_env, "world-config.yaml", &[kind]);
    let input = folder(&test_env, &[PLAIN]);
    test_env.ghostd(&["check", world.to_str().unwrap()]).ok();
    let daemon = test_env.up(&world, &["--input", input.to_str().unwrap()]);
    let path = briefing(&daemon);
    daemon.stop();
    check(&path, &input);
    let text = std::fs::read_to_string(path).unwrap();
    let line = figures_line(&text);
    assert!(line.contains("built-in") && line.contains("sandbox") && !line.contains("Not found"), "{text}");
    assert!(text.contains("reviewed and approved by subrosa"), "{text}");
}
