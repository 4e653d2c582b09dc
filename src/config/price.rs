//! Reads a price.
//!
//! An incomplete price must never be accepted, because a money budget would then be overspent.

use ghost_domain::Price;

use crate::reader::Field;
use crate::world_file::budgets::money;

/// Reads one price, in US dollars for a million tokens.
pub(crate) fn price(field: &Field<'_>) -> Option<Price> {
    let map = field.map_of("{ input: 3, output: 15 }")?;
    let usd = |key| map.get(key).and_then(|field| money(&field, "write 0 if it costs nothing"));
    let (input, output, cache_read, cache_write) = (usd("input"), usd("output"), usd("cache_read"), usd("cache_write"));
    // Without one of these prices, part of the cost would not be counted.
    for (name, found) in [("input", input), ("output", output)] {
        if found.is_none() && map.get(name).is_none() {
            field.error(format!("`{name}` is missing"), "in US dollars for a million tokens");
        }
    }
    map.finish(&[]);
    let (input, output) = (input.unwrap_or_default(), output.unwrap_or_default());
    Some(Price { input, output, cache_read: cache_read.unwrap_or(input), cache_write: cache_write.unwrap_or(input) })
}
