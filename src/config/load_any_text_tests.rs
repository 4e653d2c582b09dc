//! Loading any text returns a plan or problems.

use super::*;

fn mutated() -> impl Strategy<Value = String> {
    let lines = GOOD.lines().count();
    let noise = prop::sample::select(vec![
        "", ": ", "- ", "\t", "&a ", "*a", "{", "}", "[", "]", "'", "\"", "#", "x", "0", "${X}", "null", "!!int 3",
        "|\n", "é",
    ]);
    prop::collection::vec((0..lines, any::<prop::sample::Index>(), noise, any::<bool>()), 1..5).prop_map(|changes| {
        let mut text: Vec<String> = GOOD.lines().map(str::to_owned).collect();
        for (line, at, noise, delete) in changes {
            let chars: Vec<char> = text[line].chars().collect();
            let at = at.index(chars.len() + 1);
            let skip = usize::from(delete && at < chars.len());
            text[line] =
                chars[..at].iter().copied().chain(noise.chars()).chain(chars[at + skip..].iter().copied()).collect();
        }
        text.join("\n")
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_mutated_world_gives_a_plan_or_problems_within_the_file(text in mutated()) {
        let world = World::new();
        world.config(&text);
        let lines = text.lines().count();
        match world.load() {
            Ok(plan) => prop_assert!(!plan.agents.is_empty()),
            Err(problems) => {
                prop_assert!(problems.has_errors());
                for problem in &problems.0 {
                    prop_assert!(problem.line <= lines, "{}", problem);
                }
            }
        }
    }

    #[test]
    fn a_config_md_of_any_text_gives_a_plan_or_problems(text in "(## (LLM|Limits|Tool Access|Toolbox|Skills|Tools|Prompt|X)\n|- |model: |source: |[a-z.*`]{1,6}|: |\n|<!--|-->|é|,){0,40}") {
        let world = World::new();
        world.write("archetype/doer/config.md", &text);
        let lines = text.lines().count().max(1);
        let found = world.load().map_or_else(|problems| problems.0, |plan| plan.warnings);
        for problem in found.iter().filter(|problem| problem.file.ends_with("doer/config.md")) {
            prop_assert!(problem.line <= lines, "{}", problem);
        }
    }
}
