//! What stands in for the operators, functions and filters of the template language that build something: the same, paid for
//! from the answer's [`Budget`].
//!
//! Must never: build first and pay later where the operands do not bound what is built.

use std::sync::LazyLock;

use minijinja::functions::{self, Function};
use minijinja::value::{FunctionArgs, FunctionResult, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, State, UndefinedBehavior, Value, context, filters};

use super::budget::{Budget, bad, refuse_namespace};

/// What a round of a loop costs.
const ROUND: u64 = 64;
/// Most parts that `batch` and `slice` make.
const PARTS_MAX: usize = 10_000;
/// Most digits of a width in `format`.
const WIDTH_DIGITS: usize = 3;

/// The operators as the language has them.
static PLAIN: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment
});

/// Whether a filter's result is made of what it was given, or is something new.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Makes {
    /// Lists of values that are there already.
    Lists,
    /// Texts, or anything for which it looks at all of what it is given.
    Anew,
}

/// Adds a filter that pays for what it is given and for what it gives.
pub(super) fn add<F, Rv, Args>(environment: &mut Environment<'static>, name: &'static str, makes: Makes, filter: F)
where
    F: Function<Rv, Args>,
    Rv: FunctionResult,
    Args: for<'a> FunctionArgs<'a>,
{
    let filter = Value::from_function(filter);
    let guarded = move |state: &mut State<'_, '_>, given: Rest<ValueOrKwargs>| -> Result<Value, Error> {
        let (budget, given) = (Budget::of(state)?, given.into_values());
        let pay = |value: &Value| match makes {
            Makes::Lists => budget.flat(value),
            Makes::Anew => budget.whole(value, true),
        };
        given.iter().try_for_each(pay)?;
        product(name, &given, &budget)?;
        let made = filter.call(state, &given)?;
        pay(&made)?;
        Ok(made)
    };
    environment.add_filter(name, guarded);
}

/// Pays for what grows with the product of what a filter is given.
fn product(name: &str, given: &[Value], budget: &Budget) -> Result<(), Error> {
    let text = |at: usize| given.get(at).and_then(Value::as_str);
    let number = |at: usize| given.get(at).and_then(Value::as_usize);
    let times = |count: usize, length: usize| budget.spend_on(count.saturating_mul(length), 1);
    match name {
        "replace" => match (text(0), text(1), text(2)) {
            (Some(whole), Some(from), Some(to)) => times(whole.matches(from).count(), to.len()),
            // What is no text is made one first, of which nothing is known here.
            _ => Err(bad("`replace` takes texts".to_owned())),
        },
        "join" => match (given.first(), text(1)) {
            (Some(list), Some(between)) if !list.is_undefined() && !list.is_none() => {
                times(budget.count(list)?, between.len())
            }
            _ => Ok(()),
        },
        "indent" => times(text(0).map_or(1, |text| text.matches('\n').count() + 1), number(1).unwrap_or(0)),
        "batch" | "slice" if number(1).is_some_and(|parts| parts > PARTS_MAX) => {
            Err(bad(format!("`{name}` makes {PARTS_MAX} parts at most")))
        }
        "format" => {
            let digits = text(0).unwrap_or_default().split(|c: char| !c.is_ascii_digit()).map(str::len).max();
            let wide = digits.is_some_and(|digits| digits > WIDTH_DIGITS);
            if wide || text(0).is_some_and(|text| text.contains('*')) {
                return Err(bad(format!("`format` takes widths of {WIDTH_DIGITS} digits at most, written out")));
            }
            Ok(())
        }
        "sum" => {
            let Some(Ok(items)) = given.first().map(Value::try_iter) else { return Ok(()) };
            if items.into_iter().any(|item| item.kind() != ValueKind::Number) {
                return Err(bad("`sum` adds numbers".to_owned()));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Puts the guards in the place of what they stand for.
pub(super) fn install(environment: &mut Environment<'static>) {
    environment.add_function("CAT", |state: &State<'_, '_>, left: Value, right: Value| -> Result<String, Error> {
        Budget::of(state)?.text(&[&left, &right])
    });
    environment.add_function("ADD", |state: &State<'_, '_>, left: Value, right: Value| -> Result<Value, Error> {
        if left.kind() != ValueKind::Number || right.kind() != ValueKind::Number {
            let budget = Budget::of(state)?;
            budget.flat(&left)?;
            budget.flat(&right)?;
        }
        PLAIN.compile_expression("left + right")?.eval(context! { left, right })
    });
    environment.add_function("MUL", |state: &State<'_, '_>, left: Value, right: Value| -> Result<Value, Error> {
        let budget = Budget::of(state)?;
        for (many, times) in [(&left, &right), (&right, &left)] {
            let count = match many.kind() {
                ValueKind::String => many.as_str().map_or(0, str::len),
                ValueKind::Seq | ValueKind::Iterable => budget.count(many)?.saturating_mul(32),
                _ => continue,
            };
            budget.spend_on(count.saturating_mul(times.as_usize().unwrap_or(0)), 1)?;
        }
        PLAIN.compile_expression("left * right")?.eval(context! { left, right })
    });
    // A list that was cut is made at once: one that is worked out when it is asked for does not know how long it is.
    environment.add_function("CUT", |state: &State<'_, '_>, part: Value| -> Result<Value, Error> {
        let budget = Budget::of(state)?;
        budget.flat(&part)?;
        match part.kind() {
            ValueKind::Iterable => Ok(Value::from(part.try_iter()?.collect::<Vec<_>>())),
            _ => Ok(part),
        }
    });
    environment.add_function("ALL", |state: &State<'_, '_>, made: Value| -> Result<Value, Error> {
        Budget::of(state)?.whole(&made, false)?;
        Ok(made)
    });
    environment.add_function("HELD", |state: &State<'_, '_>, kept: Value| -> Result<Value, Error> {
        refuse_namespace(&kept)?;
        Budget::of(state)?.whole(&kept, false)?;
        Ok(kept)
    });
    environment.add_function("EACH", |state: &State<'_, '_>, all: Value, cost: u64| -> Result<Value, Error> {
        let budget = Budget::of(state)?;
        if matches!(all.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
            budget.spend_on(budget.count(&all)?, cost.saturating_add(ROUND))?;
        }
        Ok(all)
    });
    for (name, function) in
        [("dict", Value::from_function(functions::dict)), ("namespace", Value::from_function(functions::namespace))]
    {
        let guarded = move |state: &mut State<'_, '_>, given: Rest<ValueOrKwargs>| -> Result<Value, Error> {
            let (budget, given) = (Budget::of(state)?, given.into_values());
            given.iter().try_for_each(|value| refuse_namespace(value).and_then(|()| budget.whole(value, false)))?;
            function.call(state, &given)
        };
        environment.add_function(name, guarded);
    }
    // What is written into a `set` block is kept as a text: it is paid for like one.
    environment.set_formatter(|out, state, value| {
        let text = Budget::of(state)?.text(&[value])?;
        out.write_str(&text).map_err(Error::from)
    });
    // They show whatever there is, however large.
    environment.remove_global("debug");
    environment.remove_filter("pprint");
    install_filters(environment);
}

fn install_filters(environment: &mut Environment<'static>) {
    macro_rules! guarded {
        ($makes:ident: $($name:ident)*) => {
            $(add(environment, stringify!($name), Makes::$makes, filters::$name);)*
        };
    }
    guarded!(Lists: length reverse default first last list bool attr select reject selectattr rejectattr map chain);
    guarded!(Anew: safe escape lower upper title capitalize replace dictsort items trim join split lines round abs int
        float min max sort string batch slice sum indent groupby unique zip format);
    add(environment, "count", Makes::Lists, filters::length);
    add(environment, "d", Makes::Lists, filters::default);
    add(environment, "e", Makes::Anew, filters::escape);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter that is added by a later version of the language would be bounded by nothing.
    #[test]
    fn every_filter_of_the_language_is_guarded_or_gone() {
        let mut environment = Environment::new();
        install(&mut environment);
        let shown = format!("{:?}", Environment::new());
        let names = shown.split("filters: ").nth(1).and_then(|rest| rest.split(", templates: ").next()).unwrap();
        let names: Vec<&str> = names.split('"').skip(1).step_by(2).collect();
        assert!(names.len() > 40, "{names:?}");
        for name in names {
            let probe = format!("1|{name}");
            let told = environment.compile_expression(&probe).and_then(|probe| probe.eval(())).unwrap_err().to_string();
            assert!(told.contains("BUDGET") || told.contains("unknown filter"), "{name}: {told}");
        }
    }
}
