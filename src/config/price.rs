//! The price of a model.

use ghost_domain::Price;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::kinds::Usd;
use crate::typed::Hints;

/// What messages say of a price.
pub(crate) const HINTS: Hints = Hints {
    of: "PriceSection",
    such_as: "{ input: 3, output: 15 }",
    need: &[("input", "3"), ("output", "15")],
    ..Hints::NONE
};

/// A price, in US dollars for a million tokens. Without both of the first two, part of a cost would not be counted.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PriceSection {
    /// For input tokens.
    input: Option<Usd>,
    /// For output tokens.
    output: Option<Usd>,
    /// For input tokens that the provider reads from its cache. The default is `input`.
    cache_read: Option<Usd>,
    /// For input tokens that the provider writes to its cache. The default is `input`.
    cache_write: Option<Usd>,
}

impl PriceSection {
    /// The price, if it is whole.
    pub(crate) fn price(&self) -> Option<Price> {
        let (input, output) = (self.input?.0, self.output?.0);
        let cache = |price: Option<Usd>| price.map_or(input, |price| price.0);
        Some(Price { input, output, cache_read: cache(self.cache_read), cache_write: cache(self.cache_write) })
    }
}
