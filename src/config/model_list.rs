//! The list of known models: prices and capabilities. The list ships in `models.yaml`; a world may
//! extend it with its own file.
//!
//! A lookup must never guess. A model without an entry has no price, so a call under a money budget
//! is refused. Its capabilities are unknown.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use ghost_domain::Price;
use ghost_domain::model_facts::{Api, ModelFacts, ThinkingControl};
use serde::Deserialize;

use crate::kinds::{Count, choice, text_kind};
use crate::price::PriceSection;
use crate::problem::Problems;
use crate::provider_kind::ProviderKind;
use crate::reader::{Field, is_free};
use crate::report::{Report, did_you_mean};
use crate::typed::{self, Hints, Read, Spanned};
use crate::yaml;

/// The shipped list. A test checks that it parses. If it did not, no model would be known, and
/// money budgets would refuse calls.
static SHIPPED: LazyLock<Arc<ModelList>> =
    LazyLock::new(|| Arc::new(ModelList::parse(include_str!("models.yaml")).unwrap_or_default()));

/// Every word for effort, weakest first.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// The ways to control a model's thinking, by their words in the file.
const THINKING: [(&str, ThinkingControl); 6] = [
    ("never", ThinkingControl::Never),
    ("budget", ThinkingControl::Budget),
    ("effort", ThinkingControl::Effort),
    ("adaptive", ThinkingControl::Adaptive),
    ("always_adaptive", ThinkingControl::AlwaysAdaptive),
    ("switch", ThinkingControl::Switch),
];

/// The largest accepted number of tokens.
const TOKENS_MAX: u64 = 1_000_000_000;

/// Models by provider kind or provider name, then by the beginning of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelList {
    as_of: String,
    sections: BTreeMap<String, BTreeMap<String, Known>>,
}

/// One entry of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) price: Option<Price>,
    /// Without the default for `vision`, which is that of the provider's kind.
    facts: ModelFacts,
    vision: Option<bool>,
}

impl Known {
    /// The facts about this model at a provider of `kind`.
    pub(crate) fn facts_at(&self, kind: ProviderKind) -> ModelFacts {
        ModelFacts { vision: self.vision.unwrap_or(kind.sees_images()), ..self.facts.clone() }
    }
}

impl ModelList {
    /// The list that ships with Ghost.
    #[must_use]
    pub fn shipped() -> Arc<Self> {
        Arc::clone(&SHIPPED)
    }

    /// Parses a list.
    ///
    /// # Errors
    ///
    /// All problems, each with its line.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        let report = Report::default();
        let file = report.file("models.yaml");
        let node = yaml::parse_within(text, &file, None, yaml::Bounds::CONFIGURATION);
        let list = node.map(|node| Self::read(&Field::root(&node, &file), &[])).unwrap_or_default();
        let problems = report.finish();
        if problems.is_empty() { Ok(list) } else { Err(problems) }
    }

    /// Reads a list. Sections may also have the names in `providers`.
    pub(crate) fn read<'p>(root: &Field<'_>, providers: &[&'p str]) -> Self {
        let mut list = Self::default();
        let sections = || kinds().map(|kind| -> &'p str { kind }).chain(providers.iter().copied());
        for (key, field) in root.entries() {
            match key.text.as_str() {
                "as_of" => list.as_of = typed::read_as::<Day>(&field).map(|day| day.0).unwrap_or_default(),
                free if is_free(free) => {}
                name if sections().any(|known| known == name) => {
                    list.sections.insert(name.to_owned(), section(&field));
                }
                name => {
                    let known = sections().chain(["as_of"]);
                    let hint =
                        did_you_mean(name, known, "write the kind of a provider, or one of the world's providers");
                    let shown = ghost_domain::text::clip(name, 60);
                    field.error(format!("there is no provider and no kind `{shown}`"), hint);
                }
            }
        }
        list
    }

    /// This list with the entries of `other`. Entries of `other` replace those with the same name.
    #[must_use]
    pub fn merged(mut self, other: Self) -> Self {
        for (section, models) in other.sections {
            self.sections.entry(section).or_default().extend(models);
        }
        self
    }

    /// The date of the prices.
    #[must_use]
    pub fn as_of(&self) -> &str {
        &self.as_of
    }

    /// The entry with the longest name that `model` begins with, if only a version follows.
    fn find(&self, section: &str, model: &str, plain: impl Fn(&str) -> String) -> Option<&Known> {
        let model = plain(model);
        let fits = |name: &str| model.strip_prefix(&plain(name)).is_some_and(only_a_version);
        let found = self.sections.get(section)?.iter().filter(|(name, _)| fits(name));
        found.max_by_key(|(name, _)| name.len()).map(|(_, known)| known)
    }

    /// Like [`find`](Self::find): first under the name of the provider, then under its kind.
    pub(crate) fn find_at(&self, kind: ProviderKind, provider: &str, model: &str) -> Option<&Known> {
        // If a provider has the name of another kind, the section of that kind does not apply to
        // it.
        let named = ProviderKind::named(provider).is_none().then_some(provider);
        named.into_iter().chain([kind.as_str()]).find_map(|section| self.find(section, model, str::to_owned))
    }

    /// Finds a model served by a gateway. Gateways often use names like `vendor/model:variant`,
    /// with dots where the vendor has dashes. The capabilities are those of the vendor's model, if
    /// the part after the last `/` matches one model of exactly one kind. The price, the API and its own
    /// forms are the gateway's, so they stay unknown.
    pub(crate) fn find_anywhere(&self, model: &str) -> Option<ModelFacts> {
        let model = model.rsplit('/').next().unwrap_or(model);
        let at = |(name, kind): (&'static str, ProviderKind)| {
            self.find(name, model, |name| name.replace('.', "-")).map(|known| known.facts_at(kind))
        };
        let mut found = vendors().filter_map(at);
        match (found.next(), found.next()) {
            (Some(known), None) => Some(ModelFacts { api: None, loads_tools: false, ..known }),
            _ => None,
        }
    }
}

/// The provider kinds that the list may contain.
fn kinds() -> impl Iterator<Item = &'static str> + Clone {
    vendors().map(|(name, _)| name)
}

/// The provider kinds that the list may contain, with their names.
fn vendors() -> impl Iterator<Item = (&'static str, ProviderKind)> + Clone {
    ProviderKind::ALL.into_iter().filter(|(_, kind)| !kind.is_local())
}

/// One entry of a section.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ModelSection {
    /// The price, in US dollars for a million tokens.
    price: Option<PriceSection>,
    /// How a request tells the model to reason.
    thinking: Option<Thinking>,
    /// The words for effort that the model takes.
    efforts: Vec<Effort>,
    /// The fewest and the most tokens to think with.
    thinking_tokens: Option<Spanned<Vec<Count<0, TOKENS_MAX>>>>,
    /// Whether a request may set the temperature. The default is that it may.
    temperature: Option<bool>,
    /// Tokens of the context window.
    context: Option<Count<1, TOKENS_MAX>>,
    /// Tokens of the longest answer.
    output: Option<Count<1, TOKENS_MAX>>,
    /// The API of the OpenAI kind that the model needs.
    api: Option<Api>,
    /// Whether the model sees images. The default is that of the kind.
    vision: Option<bool>,
    /// Whether a request may leave tools out that the model then asks for.
    loads_tools: bool,
}

text_kind!(Effort(String), 64, "effort", |word| choice(word, &EFFORTS));
text_kind!(Thinking(ThinkingControl), 64, "way to tell a model to think", |word| {
    choice(word, &THINKING.map(|(word, _)| word))?;
    Ok(THINKING.iter().find(|(known, _)| *known == word).map(|(_, control)| *control).unwrap_or_default())
});

/// What messages say of an entry.
static HINTS: [Hints; 2] = [
    Hints {
        of: "ModelSection",
        such_as: "{ context: 128_000, output: 16_384 }",
        misplaced: &[&[
            ("input", "write prices under `price: { input: …, output: … }`"),
            ("max_tokens", "write `output`"),
            ("context_window", "write `context`"),
            ("reasoning", "write `thinking`"),
            ("images", "write `vision`"),
        ]],
        ..Hints::NONE
    },
    crate::price::HINTS,
];

fn section(field: &Field<'_>) -> BTreeMap<String, Known> {
    let mut models = BTreeMap::new();
    for (key, field) in field.entries() {
        if key.text.trim().is_empty() || key.text.len() > 200 {
            field.error("this is not the name of a model", "write 1 to 200 bytes, as the provider calls it");
        } else if let Some(read) = typed::read(&field, &HINTS) {
            models.insert(key.text.clone(), known(&read));
        }
    }
    models
}

fn known(read: &Read<'_, ModelSection>) -> Known {
    let efforts = EFFORTS.iter().filter(|word| read.efforts.iter().any(|effort| effort.0 == **word));
    let facts = ModelFacts {
        thinking: read.thinking.as_ref().map(|thinking| thinking.0).unwrap_or_default(),
        efforts: efforts.map(|word| (*word).to_owned()).collect(),
        thinking_tokens: read.thinking_tokens.as_ref().and_then(|ends| range(read.at(ends), ends)),
        temperature: read.temperature.unwrap_or(true),
        context_tokens: read.context.map(|count| count.0),
        output_tokens: read.output.map(|count| count.0),
        api: read.api,
        vision: false,
        loads_tools: read.loads_tools,
    };
    Known { price: read.price.as_ref().and_then(PriceSection::price), facts, vision: read.vision }
}

fn range(field: &Field<'_>, ends: &[Count<0, TOKENS_MAX>]) -> Option<(u64, u64)> {
    match ends {
        [least, most] if least.0 <= most.0 => Some((least.0, most.0)),
        // Values that cannot be read have been reported.
        _ if ends.len() == field.length() => {
            field.error("this is no range of tokens", "write the fewest and the most, such as [1_024, 32_000]");
            None
        }
        _ => None,
    }
}

text_kind!(Day(String), 40, "day", |text| {
    let fits = |(at, byte): (usize, u8)| if matches!(at, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() };
    match text.len() == 10 && text.bytes().enumerate().all(fits) {
        true => Ok(text.to_owned()),
        false => Err((format!("`{text}` is not a day"), "write it as 2026-07-02".into())),
    }
});

/// Whether `rest`, the text after a model's name, is empty or a version: `-2024-08-06` and
/// `-latest` are versions. `-mini` and the `-5` of `claude-opus-4-5` are not: they name other
/// models.
fn only_a_version(rest: &str) -> bool {
    if rest.is_empty() {
        return true;
    }
    let Some(version) = rest.strip_prefix(['-', '@']) else { return false };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let word = |part: &str| matches!(part, "latest" | "preview" | "exp");
    let mut parts = version.split(['-', '.']);
    // A date, a year or a number with three digits or more. A shorter number is part of the name.
    parts.next().is_some_and(|part| word(part) || digits(part) && part.len() >= 3)
        && parts.all(|part| word(part) || digits(part))
}

#[cfg(test)]
#[path = "model_list_tests.rs"]
mod tests;
