//! Every example of `docs/providers.md` loads without a problem.

use crate::fixture::World;
use crate::{Problems, model_warnings};

const PAGE: &str = include_str!("../../docs/providers.md");
const AGENTS: &str = "agents: [{ id: ada, archetype: doer }]\naccess: { default: privileged }\n";

/// The texts of the fenced YAML examples.
fn examples() -> Vec<&'static str> {
    PAGE.split("```yaml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect()
}

fn is_list(example: &&str) -> bool {
    example.starts_with("# models.yaml")
}

#[test]
fn every_example_of_the_page_loads() {
    let env = |_: &str| Some("from-the-environment".to_owned());
    let mut seen = Vec::new();
    for example in examples().into_iter().filter(|example| !is_list(example)) {
        let world = World::new();
        world.config(&format!("{AGENTS}{example}"));
        for (name, config) in [("analyst", "# analyst\n"), ("doer", "## LLM\nmax_tokens: 4096\n")] {
            world.write(&format!("archetype/{name}/config.md"), config);
        }
        for list in examples().iter().filter(|example| is_list(example)) {
            world.write("models.yaml", list);
        }
        let plan = crate::load(&world.dir(), &env).unwrap_or_else(|problems| panic!("{example}{problems}"));
        let mut found = plan.warnings.clone();
        found.extend(model_warnings(&plan));
        assert!(found.is_empty(), "{example}{}", Problems(found));
        let provider = &plan.llm.providers[&plan.llm.default_provider];
        let facts = plan.llm.facts(provider.kind, &plan.llm.default_provider, &plan.llm.default_model);
        seen.push((plan.llm.default_provider, facts != Default::default()));
    }
    for name in ["anthropic", "openai", "openai-eu", "azure", "openrouter", "gemini", "ollama", "vllm"] {
        assert!(seen.contains(&(name.to_owned(), true)), "{name} has an example with a known model");
    }
    for name in ["llama", "lmstudio"] {
        assert!(seen.iter().any(|(seen, _)| seen == name), "{name}");
    }
    assert!(!seen.contains(&("azure".to_owned(), false)), "the list of the page is read");
}
