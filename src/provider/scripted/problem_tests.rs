//! Every problem of a rule file is reported once, on its line.

use std::fs;

use proptest::prelude::*;

use super::tests::load;
use super::*;
use ghost_domain::testing::ManualClock;

/// All problems of a file, in order of line.
fn check(rules: &str) -> Vec<ghost_config::Problem> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("m.yaml"), rules).unwrap();
    Problems::sorted(survey(dir.path(), &dir.path().canonicalize().unwrap()).problems).0
}

/// Asserts that exactly the expected problems are reported, each on its line.
fn told(rules: &str, expected: &[(usize, &str)]) {
    let problems = check(rules);
    let found: Vec<(usize, String)> = problems.iter().map(|p| (p.line, p.bare().to_string())).collect();
    for (line, part) in expected {
        assert!(found.iter().any(|(l, told)| l == line && told.contains(part)), "{line} {part}: {found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "each told once: {found:#?}");
}

#[test]
fn a_name_is_defined_once_and_known_where_it_is_used() {
    let rules = r#"let:
  first: "second[1:] | length"
  second: "mail | lines"
  itself: "itself ~ 'x'"
  one: "other"
  other: "one"
  mail: "text"
  range: "1"
  Bad-Name: "1"
  twice: "1"
  twice: "2"
  number: 7
  broken: "1 +"
  slip: "secnd"
  each: "item.path"
rules:
  - name: r
    let:
      second: "1"
      own: "second"
    do: [{ say: "{{ own }} {{ owm }}" }]
  - name: s
    do: [{ say: "{{ own }}" }]
otherwise: [{ say: "{{ first }}" }]
"#;
    told(
        rules,
        &[
            (7, "`mail`"),
            (8, "`range`"),
            (9, "Bad-Name"),
            (11, "`twice`"),
            (12, "let.number"),
            (13, "let.broken: "),
            (14, "`second`"),
            (15, "`for_each`"),
            (19, "`second`"),
            (21, "`own`"),
            (23, "`own`"),
        ],
    );
    let many: String = (0..201).map(|n| format!("  n{n}: '1'\n")).collect();
    assert!(load(&format!("let:\n{many}otherwise: [{{ say: x }}]")).err().unwrap().contains("200"));
    for wrong in ["let: [a]", "let: x"] {
        assert!(load(&format!("{wrong}\notherwise: [{{ say: x }}]")).is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn any_definitions_are_checked_without_a_panic(
        pairs in prop::collection::vec(("[a-c]", "[a-c |+.(){}'~%]{0,12}"), 0..6),
    ) {
        let lets: String = pairs.iter().map(|(name, source)| format!("  {name}: {source:?}\n")).collect();
        check(&format!("let:\n{lets}otherwise: [{{ say: '{{{{ a }}}}' }}]\n"));
    }
}

#[test]
fn every_mistake_is_reported_with_its_line() {
    let rules = r#"rules:
  - name: one
    when: { mail: '(' }
    do:
      - say: "{{ mial }}"
  - name: two
    when:
      round: many
    do:
      - call: x
        say: y
      - wait: soon
      - say: |
          fine
          {{ mail | headngs }}
      - fail: { kind: tired }
  - do: []
"#;
    told(
        rules,
        &[
            (1, "`otherwise`"),
            (3, "rules[0].when.mail: `(`"),
            (5, "`mail`"),
            (8, "`many`"),
            (10, "rules[1].do[0]"),
            (12, "`soon`"),
            (16, "`tired`"),
            (17, "rules[2].do"),
        ],
    );
    told("otherwise: [{ say: x }]\na: [\n", &[(2, "")]);
    assert_eq!(survey(Path::new("/absent"), Path::new("/absent")).problems.len(), 1);
    assert!(Scripted::load(Path::new("/absent"), ManualClock::at(0)).is_err());
    assert!(path_of(Path::new("d"), "../x").is_none() && path_of(Path::new("d"), "a.b-c").is_some());
}

#[test]
fn an_unknown_key_hides_nothing() {
    let rules = r#"abuot: x
vars: { a: 1 }
rules:
  - nmae: one
    when: { mial: x, rond: 0, agent: [a, { b: c }], failed: yes }
    do:
      - cal: x
        say: "{{ nothing }} {{ mial }}"
      - { call: y, args: { a: 1 }, with: [1] }
      - { say: x, with: { a: "{{ oops }}" } }
      - { fail: { kind: server, tmes: 2 } }
    doo: 1
  - when: { if: "1 +" }
  - x-note: free
    do: { say: x }
otherwise:
"#;
    told(
        rules,
        &[
            (1, "`about`"),
            (4, "`name`"),
            (5, "`mail`"),
            (5, "`round`"),
            (5, "rules[0].when.agent[1]: "),
            (5, "`yes`"),
            (7, "`call`"),
            (8, "`nothing`"),
            (8, "`mail`"),
            (9, "`with`"),
            (9, ".with"),
            (10, "`call`"),
            (10, "`oops`"),
            (11, "`times`"),
            (12, "`do`"),
            (13, "rules[1].when.if: "),
            (13, "`do`"),
            (15, "rules[2].do: "),
            (16, "otherwise: "),
        ],
    );
}

#[test]
fn problems_within_texts_of_several_lines_are_told_on_their_lines() {
    let rules = r#"let:
  long: >-
    mail | lines
    | frist
rules:
  - when: { if: long }
    do:
      - say: |

          fine {{ mail }}
          {% for x in mail | lines %}
          {{ x }} {{ wrong }}
          {% endfor %}
          {{ mail | headngs }} {{ mail | headngs }}
      - say: "in quotes
          {{ mail }}
          {{ wrng }}"
      - call: workspace.write
        with:
          content: &text |2-
                deep
              {{ deeep }}
          other: |
            {% if mail %}
            {{ mail
            {% endif %}
      - say: *text
otherwise: [{ say: x }]
"#;
    told(
        rules,
        &[
            (12, "`wrong`"),
            (17, "`wrng`"),
            (22, "with.content: `deeep`"),
            (22, "do[3].say: `deeep`"),
            (26, "with.other"),
        ],
    );
}

#[test]
fn a_check_compiles_conditions_and_knows_the_tools() {
    let rules = r#"rules:
  - when: { tool: a.b, tools_called: { c.d: 1 }, tools_ok: { e.f: 1 }, called_all: [g.h], not_called: [i.j] }
    do:
      - call: k.l
      - call: "{{ mail }}.m"
  - when: { mail: '(\w{1000}){1000}' }
    do: [{ say: x }]
otherwise: [{ say: x }]
"#;
    told(rules, &[(6, "rules[1].when.mail")]);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("m.yaml"), rules).unwrap();
    let survey = survey(dir.path(), &dir.path().canonicalize().unwrap());
    let names: Vec<(usize, &str, bool)> =
        survey.models["m"].iter().map(|tool| (tool.line, tool.name.as_str(), tool.called)).collect();
    let expected = [
        (2, "a.b", false),
        (2, "c.d", false),
        (2, "e.f", false),
        (2, "g.h", false),
        (2, "i.j", false),
        (4, "k.l", true),
    ];
    assert_eq!(names, expected);
    // A start does not compile an expression of a rule that it may never reach.
    assert!(load(rules).is_ok());
}

proptest! {
    #[test]
    fn any_file_is_read_without_a_panic(text in ".{0,300}") {
        check(&format!("otherwise:\n  - say: {text}\n"));
        check(&text);
    }
}

/// A pipe waits for a writer, a device has no end, and a link may lead to a file outside the world.
/// None of these is read, and no content of a foreign file is reported.
#[test]
fn a_rule_file_is_a_file_of_the_world() {
    let (world, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = world.path().canonicalize().unwrap();
    let scripts = root.join("scripts");
    fs::create_dir_all(root.join("shared")).unwrap();
    fs::create_dir(&scripts).unwrap();
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, scripts.join(name)).unwrap();
    fs::write(root.join("shared/inside.yaml"), "otherwise: [{ say: hello }]").unwrap();
    fs::write(outside.path().join("secret"), "hunter2: hunter2").unwrap();
    link(&root.join("shared/inside.yaml"), "inside.yaml");
    let load = || Scripted::load_within(&scripts, &root, ManualClock::at(0));
    assert!(load().is_ok());
    link(&outside.path().join("secret"), "outside.yaml");
    link(Path::new("/dev/zero"), "device.yaml");
    fs::create_dir(scripts.join("folder.yaml")).unwrap();
    fs::write(scripts.join("large.yaml"), "x".repeat((1 << 20) + 1)).unwrap();
    let (pipe, mode) = (scripts.join("pipe.yaml"), rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let expected = [("device", ""), ("folder", ""), ("large", "1048576"), ("outside", ""), ("pipe", "")];
    let problems = Problems::sorted(survey(&scripts, &root).problems).0;
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    let refusal = load().err().unwrap().message;
    for (problem, (name, told)) in problems.iter().zip(expected) {
        assert!(problem.file.ends_with(format!("{name}.yaml")) && problem.message.contains(told), "{problem:?}");
        assert!(refusal.contains(&format!("{name}.yaml")) && refusal.contains(told), "{refusal}");
    }
    assert!(!refusal.contains("hunter2") && !problems.iter().any(|problem| problem.to_string().contains("hunter2")));

    // A directory outside the world is not read either.
    fs::write(outside.path().join("m.yaml"), "otherwise: [{ say: hello }]").unwrap();
    std::os::unix::fs::symlink(outside.path(), root.join("elsewhere")).unwrap();
    let found = survey(&root.join("elsewhere"), &root).problems;
    assert!(found.len() == 1, "{found:?}");
}
